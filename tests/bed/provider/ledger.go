package main

import (
	"encoding/json"
	"os"
	"time"
)

// entry is one line of the ledger: what was done to which thing, when (UTC), and by which process
// (or, of a child that was left behind, which process it is).
type entry struct {
	Act  string `json:"act"`
	ID   string `json:"id"`
	Name string `json:"name"`
	Time string `json:"time"`
	PID  int    `json:"pid"`
}

// record appends one line about what this process did.
func record(ledger, act, id, name string) error { return recordOf(os.Getpid(), ledger, act, id, name) }

// recordOf appends one line. A single write to a file opened for appending keeps the lines of several processes whole.
func recordOf(pid int, ledger, act, id, name string) error {
	if ledger == "" {
		return nil
	}
	line, err := json.Marshal(entry{act, id, name, time.Now().UTC().Format(time.RFC3339Nano), pid})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
