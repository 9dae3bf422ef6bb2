package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// holderVerb makes this program a process that does nothing but live, with the descriptors it was given.
const holderVerb = "hold"

// startHolder leaves a child behind that keeps this process's standard error open. It is descriptor 2 itself that
// matters: `os.Stderr` is a pipe of the plugin library by now, while OpenTofu waits for the end of descriptor 2.
// A stubborn one lives in a session of its own and is deaf to everything that can be ignored.
func startHolder(seconds float64, stubborn bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	manner := "plain"
	if stubborn {
		manner = "stubborn"
	}
	child := exec.Command(self, holderVerb, strconv.FormatFloat(seconds, 'f', -1, 64), manner)
	child.Stderr = os.NewFile(2, "standard error")
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: stubborn}
	return child.Start()
}

func hold(arguments []string) {
	if len(arguments) != 2 {
		os.Exit(2)
	}
	seconds, err := strconv.ParseFloat(arguments[0], 64)
	if err != nil {
		os.Exit(2)
	}
	if arguments[1] == "stubborn" {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	}
	time.Sleep(time.Duration(seconds * float64(time.Second)))
}
