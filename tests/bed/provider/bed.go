package main

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// bed is the provider itself. Its one setting is where things write what happens to them, unless they say otherwise.
type bed struct{}

type bedModel struct {
	Ledger types.String `tfsdk:"ledger"`
}

func newBed() provider.Provider { return &bed{} }

func (*bed) Metadata(_ context.Context, _ provider.MetadataRequest, answer *provider.MetadataResponse) {
	answer.TypeName = "bed"
	answer.Version = "0.1.0"
}

func (*bed) Schema(_ context.Context, _ provider.SchemaRequest, answer *provider.SchemaResponse) {
	answer.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"ledger": schema.StringAttribute{
			Optional:    true,
			Description: "File that gets one JSON line for every act; without one nothing is recorded.",
		},
	}}
}

func (*bed) Configure(ctx context.Context, ask provider.ConfigureRequest, answer *provider.ConfigureResponse) {
	var model bedModel
	answer.Diagnostics.Append(ask.Config.Get(ctx, &model)...)
	answer.ResourceData = model.Ledger.ValueString()
	answer.DataSourceData = model.Ledger.ValueString()
}

func (*bed) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &thing{} }}
}

func (*bed) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{func() datasource.DataSource { return &reading{} }}
}
