module go_server

go 1.18
