package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// What a create may start and leave behind. None of them holds an output that OpenTofu waits for: a holder does that.
const (
	noChild        = "none"
	plainChild     = "plain"           // does nothing but live
	leftSession    = "left_session"    // of a parent that is gone, in a session of its own, with an empty environment
	ignoresSigterm = "ignores_sigterm" // in OpenTofu's process group, deaf to everything that can be ignored
	keepsForking   = "keeps_forking"   // each generation is over as soon as the next one is there; deaf, too
	otherUser      = "other_user"      // nobody's; starting it takes root
)

// leaverVerb makes this program start a holder out of everybody's reach, say its process id, and end.
const leaverVerb = "leave"

// nobody is the number of the user and the group of that name.
const nobody = 65534

// forever forks and ends, and forks and ends. A shell's functions call themselves a thousand times and no more, so it begins
// anew before that.
const forever = `trap '' TERM INT HUP; s=$1; n=0
f() { echo >> "$0"; n=$((n + 1)); if [ $n -lt 900 ]; then f & else sh -c "$s" "$0" "$s" & fi; }
f`

// startChild starts one, and answers its process id: of one that keeps forking, that of the first generation. Where those
// write that they were there is `generations`.
func startChild(kind string, seconds float64, generations string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	lives := strconv.FormatFloat(seconds, 'f', -1, 64)
	switch kind {
	case plainChild:
		return started(exec.Command(self, holderVerb, lives, "plain"))
	case ignoresSigterm:
		return started(exec.Command(self, holderVerb, lives, "stubborn"))
	case leftSession:
		said, err := exec.Command(self, leaverVerb, lives).Output()
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(said)))
	case keepsForking:
		return started(exec.Command("/bin/sh", "-c", forever, generations, forever))
	case otherUser:
		// This program itself may lie where only its owner can look.
		child := exec.Command("/bin/sleep", lives)
		child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		child.Dir = "/"
		return started(child)
	}
	return 0, errors.New("no such child: " + kind)
}

// started starts a command, and lets go of it when it ends.
func started(child *exec.Cmd) (int, error) {
	if err := child.Start(); err != nil {
		return 0, err
	}
	go func() { _ = child.Wait() }()
	return child.Process.Pid, nil
}

// leave starts a holder whose only tie to anybody is that its parent was one, and says its process id.
func leave(arguments []string) {
	self, err := os.Executable()
	if err != nil || len(arguments) != 1 {
		os.Exit(2)
	}
	child := exec.Command(self, holderVerb, arguments[0], "plain")
	child.Env = []string{}
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		os.Exit(1)
	}
	fmt.Println(child.Process.Pid)
}
