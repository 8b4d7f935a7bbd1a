module go_holders

go 1.18
