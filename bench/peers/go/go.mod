module discard

go 1.24
