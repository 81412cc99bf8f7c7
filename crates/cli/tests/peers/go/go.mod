module peer

go 1.24
