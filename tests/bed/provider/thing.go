package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/float64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// What a create may do instead of simply succeeding.
const (
	normal      = "normal"
	failHalfWay = "fail_half_way" // written to the ledger, then an error: the thing is tainted
	crash       = "crash"         // the plugin process dies in mid-create
	holdStderr  = "hold_stderr"   // succeeds, and leaves a child that holds the plugin's standard error
	chatter     = "chatter"       // succeeds, with megabytes of warnings
)

// thing is the resource `bed_thing`.
type thing struct {
	ledger string
}

type thingModel struct {
	Name             types.String  `tfsdk:"name"`
	Ledger           types.String  `tfsdk:"ledger"`
	Seconds          types.Float64 `tfsdk:"seconds"`
	UpdateSeconds    types.Float64 `tfsdk:"update_seconds"`
	DestroySeconds   types.Float64 `tfsdk:"destroy_seconds"`
	OnStop           types.String  `tfsdk:"on_stop"`
	Behaviour        types.String  `tfsdk:"behaviour"`
	HoldSeconds      types.Float64 `tfsdk:"hold_seconds"`
	HoldStubborn     types.Bool    `tfsdk:"hold_stubborn"`
	Child            types.String  `tfsdk:"child"`
	ChatterMegabytes types.Float64 `tfsdk:"chatter_megabytes"`
	Note             types.String  `tfsdk:"note"`
	ReplaceOn        types.String  `tfsdk:"replace_on"`
	ID               types.String  `tfsdk:"id"`
	Secret           types.String  `tfsdk:"secret"`
}

func (*thing) Metadata(_ context.Context, _ resource.MetadataRequest, answer *resource.MetadataResponse) {
	answer.TypeName = "bed_thing"
}

func (*thing) Schema(_ context.Context, _ resource.SchemaRequest, answer *resource.SchemaResponse) {
	kept := []planmodifier.String{stringplanmodifier.UseStateForUnknown()}
	answer.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"name":            schema.StringAttribute{Required: true, Description: "What the ledger calls it."},
		"ledger":          schema.StringAttribute{Optional: true, Description: "File for this thing's acts, instead of the provider's."},
		"seconds":         seconds(0, "How long its creation takes."),
		"update_seconds":  seconds(0, "How long an update takes."),
		"destroy_seconds": seconds(0, "How long its destruction takes."),
		"on_stop":         choice("ignore", "What a stop does to work in flight.", "ignore", "honour"),
		"behaviour":       choice(normal, "What its creation does.", normal, failHalfWay, crash, holdStderr, chatter),
		"hold_seconds":    seconds(60, "How long the child of hold_stderr, or another one, lives."),
		"child": choice(noChild, "What its creation starts and leaves behind.", noChild, plainChild, leftSession,
			ignoresSigterm, keepsForking, otherUser),
		"chatter_megabytes": seconds(4, "How much chatter says."),
		"hold_stubborn": schema.BoolAttribute{
			Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			Description: "Whether that child has a session of its own and ignores SIGINT, SIGTERM and SIGHUP.",
		},
		"note": schema.StringAttribute{Optional: true, Description: "Changed in place. An error repeats it."},
		"replace_on": schema.StringAttribute{
			Optional: true, Description: "A change of it replaces the thing.",
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"id":     schema.StringAttribute{Computed: true, PlanModifiers: kept},
		"secret": schema.StringAttribute{Computed: true, Sensitive: true, PlanModifiers: kept},
	}}
}

func seconds(preset float64, description string) schema.Float64Attribute {
	return schema.Float64Attribute{
		Optional: true, Computed: true, Default: float64default.StaticFloat64(preset), Description: description,
	}
}

func choice(preset, description string, allowed ...string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString(preset),
		Description: description + " One of " + strings.Join(allowed, ", ") + ".",
		Validators:  oneOf(allowed),
	}
}

func (t *thing) Configure(_ context.Context, ask resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	if ledger, ok := ask.ProviderData.(string); ok {
		t.ledger = ledger
	}
}

// Create writes the ledger first: from then on the thing exists, whatever becomes of the state. A create that ends
// early keeps what it has in the state, so OpenTofu calls it tainted.
func (t *thing) Create(ctx context.Context, ask resource.CreateRequest, answer *resource.CreateResponse) {
	var model thingModel
	answer.Diagnostics.Append(ask.Plan.Get(ctx, &model)...)
	if answer.Diagnostics.HasError() {
		return
	}
	id := newID()
	model.ID = types.StringValue(id)
	model.Secret = types.StringValue("secret-of-" + id)
	if err := record(t.book(model), "created", id, model.Name.ValueString()); err != nil {
		answer.Diagnostics.AddError("the ledger cannot be written", err.Error())
		return
	}
	answer.Diagnostics.Append(answer.State.Set(ctx, &model)...)
	if err := model.leaveChild(t.book(model)); err != nil {
		answer.Diagnostics.AddError("the child of "+model.Name.ValueString()+" could not be started", err.Error())
		return
	}

	takes := model.Seconds.ValueFloat64()
	behaviour := model.Behaviour.ValueString()
	if behaviour == failHalfWay || behaviour == crash {
		takes /= 2
	}
	if err := model.work(ctx, "creating", takes); err != nil {
		answer.Diagnostics.AddError("the creation of "+model.Name.ValueString()+" did not end", err.Error())
		return
	}
	model.misbehave(&answer.Diagnostics)
}

// leaveChild starts what its configuration asks for, and writes its process id to the ledger.
func (m *thingModel) leaveChild(ledger string) error {
	kind := m.Child.ValueString()
	if kind == "" || kind == noChild {
		return nil
	}
	pid, err := startChild(kind, m.HoldSeconds.ValueFloat64(), ledger+".generations")
	if err != nil {
		return err
	}
	return recordOf(pid, ledger, "spawned", m.ID.ValueString(), m.Name.ValueString())
}

// misbehave does, after the time of a create has passed, what its behaviour asks for.
func (m *thingModel) misbehave(said *diag.Diagnostics) {
	name := m.Name.ValueString()
	switch m.Behaviour.ValueString() {
	case failHalfWay:
		said.AddError("the thing "+name+" failed half-way", "its note is "+m.Note.ValueString())
	case crash:
		// In a goroutine of its own, where no library can catch it.
		go panic("the thing " + name + " was told to crash")
		select {}
	case holdStderr:
		if err := startHolder(m.HoldSeconds.ValueFloat64(), m.HoldStubborn.ValueBool()); err != nil {
			said.AddError("the holder could not be started", err.Error())
		}
	case chatter:
		// OpenTofu swallows what a plugin prints; what it passes on are warnings, but only ones that differ.
		const size = 32 << 10
		for part := 0; part < int(m.ChatterMegabytes.ValueFloat64()*(1<<20))/size; part++ {
			said.AddWarning(fmt.Sprintf("%s has more to say, part %d", name, part), strings.Repeat("chatter ", size/8))
		}
	}
}

func (*thing) Read(context.Context, resource.ReadRequest, *resource.ReadResponse) {
	// Nothing changes a thing behind OpenTofu's back: the state is the truth.
}

func (t *thing) Update(ctx context.Context, ask resource.UpdateRequest, answer *resource.UpdateResponse) {
	var model thingModel
	answer.Diagnostics.Append(ask.Plan.Get(ctx, &model)...)
	if answer.Diagnostics.HasError() {
		return
	}
	if err := record(t.book(model), "updated", model.ID.ValueString(), model.Name.ValueString()); err != nil {
		answer.Diagnostics.AddError("the ledger cannot be written", err.Error())
		return
	}
	if err := model.work(ctx, "updating", model.UpdateSeconds.ValueFloat64()); err != nil {
		answer.Diagnostics.AddError("the update of "+model.Name.ValueString()+" did not end", err.Error())
		return
	}
	answer.Diagnostics.Append(answer.State.Set(ctx, &model)...)
}

// Delete writes the ledger last: until then the thing exists.
func (t *thing) Delete(ctx context.Context, ask resource.DeleteRequest, answer *resource.DeleteResponse) {
	var model thingModel
	answer.Diagnostics.Append(ask.State.Get(ctx, &model)...)
	if answer.Diagnostics.HasError() {
		return
	}
	if err := model.work(ctx, "destroying", model.DestroySeconds.ValueFloat64()); err != nil {
		answer.Diagnostics.AddError("the destruction of "+model.Name.ValueString()+" did not end", err.Error())
		return
	}
	if err := record(t.book(model), "deleted", model.ID.ValueString(), model.Name.ValueString()); err != nil {
		answer.Diagnostics.AddError("the ledger cannot be written", err.Error())
	}
}

// book is the ledger of this thing: its own, else the provider's.
func (t *thing) book(model thingModel) string {
	if own := model.Ledger.ValueString(); own != "" {
		return own
	}
	return t.ledger
}

func (m *thingModel) work(ctx context.Context, doing string, takes float64) error {
	return work(ctx, doing+" "+m.Name.ValueString(), takes, m.OnStop.ValueString() == "honour")
}

func newID() string {
	var bytes [6]byte
	_, _ = rand.Read(bytes[:]) // never fails
	return hex.EncodeToString(bytes[:])
}
