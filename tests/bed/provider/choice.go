package main

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// allowed refuses any other value while OpenTofu validates, before anything is created.
type allowed []string

func oneOf(values []string) []validator.String { return []validator.String{allowed(values)} }

func (a allowed) Description(context.Context) string { return "one of " + strings.Join(a, ", ") }

func (a allowed) MarkdownDescription(ctx context.Context) string { return a.Description(ctx) }

func (a allowed) ValidateString(ctx context.Context, ask validator.StringRequest, answer *validator.StringResponse) {
	value := ask.ConfigValue
	if value.IsNull() || value.IsUnknown() || slices.Contains(a, value.ValueString()) {
		return
	}
	answer.Diagnostics.AddAttributeError(ask.Path, "no such choice", value.ValueString()+" is not "+a.Description(ctx))
}
