module trivet.dev/trivet

go 1.26
