package main

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// reading is the data source `bed_reading`: it takes a while, so that a plan or a refresh can be interrupted.
type reading struct {
	ledger string
}

type readingModel struct {
	Name    types.String  `tfsdk:"name"`
	Seconds types.Float64 `tfsdk:"seconds"`
	OnStop  types.String  `tfsdk:"on_stop"`
	Value   types.String  `tfsdk:"value"`
}

func (*reading) Metadata(_ context.Context, _ datasource.MetadataRequest, answer *datasource.MetadataResponse) {
	answer.TypeName = "bed_reading"
}

func (*reading) Schema(_ context.Context, _ datasource.SchemaRequest, answer *datasource.SchemaResponse) {
	answer.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"name":    schema.StringAttribute{Required: true, Description: "What is read."},
		"seconds": schema.Float64Attribute{Optional: true, Description: "How long it takes; nothing by default."},
		"on_stop": schema.StringAttribute{
			Optional: true, Description: "ignore (default) or honour.", Validators: oneOf([]string{"ignore", "honour"}),
		},
		"value": schema.StringAttribute{Computed: true},
	}}
}

func (r *reading) Configure(_ context.Context, ask datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	if ledger, ok := ask.ProviderData.(string); ok {
		r.ledger = ledger
	}
}

func (r *reading) Read(ctx context.Context, ask datasource.ReadRequest, answer *datasource.ReadResponse) {
	var model readingModel
	answer.Diagnostics.Append(ask.Config.Get(ctx, &model)...)
	if answer.Diagnostics.HasError() {
		return
	}
	name := model.Name.ValueString()
	if err := record(r.ledger, "read", "", name); err != nil {
		answer.Diagnostics.AddError("the ledger cannot be written", err.Error())
		return
	}
	if err := work(ctx, "reading "+name, model.Seconds.ValueFloat64(), model.OnStop.ValueString() == "honour"); err != nil {
		answer.Diagnostics.AddError("the reading of "+name+" did not end", err.Error())
		return
	}
	model.Value = types.StringValue("reading of " + name)
	answer.Diagnostics.Append(answer.State.Set(ctx, &model)...)
}
