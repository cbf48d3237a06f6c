module example.org/diskwright

go 1.19
