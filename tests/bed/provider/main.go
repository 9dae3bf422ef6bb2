// The provider `dcctl/bed` of the test bed: a real plugin process whose things tests can count, time and upset.
//
// The public providers that need no network end within milliseconds of an interrupt, so an apply of theirs proves
// nothing about stopping. A `bed_thing` takes the seconds it is told, writes what it does to a ledger (one JSON line
// an act), and does by configuration what real providers have been seen to do: finish in spite of a stop, give up at
// it, fail half-way, die, leave a child that holds their standard error, leave one of any other kind that is hard to end, or
// drown their caller in words.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case holderVerb:
			hold(os.Args[2:])
			return
		case leaverVerb:
			leave(os.Args[2:])
			return
		}
	}
	// The address is only a label of the debug mode; which source a configuration names is settled by the mirror.
	options := providerserver.ServeOpts{Address: "bed.invalid/dcctl/bed"}
	if err := providerserver.Serve(context.Background(), newBed, options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
