module peer

go 1.24.0
