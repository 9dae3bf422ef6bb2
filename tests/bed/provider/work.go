package main

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"
)

// errStopped says that a stop ended the work early.
var errStopped = errors.New("stopped on request")

// work takes the given time and reports its progress once a second. OpenTofu's Stop cancels the context: only work
// that honours a stop looks at it. Work that ignores it goes on even when OpenTofu itself is gone.
func work(ctx context.Context, what string, seconds float64, honoursStop bool) error {
	whole := time.Duration(seconds * float64(time.Second))
	end := time.After(whole)
	began := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var stop <-chan struct{}
	if honoursStop {
		stop = ctx.Done()
	}
	for {
		select {
		case <-end:
			return nil
		case <-stop:
			return errStopped
		case <-tick.C:
			tflog.Info(ctx, what, map[string]any{"done": time.Since(began).Seconds(), "of": seconds})
		}
	}
}
