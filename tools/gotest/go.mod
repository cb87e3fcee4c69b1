module belay.dev/belay/tools/gotest

go 1.26.0
