module go_locks

go 1.18
