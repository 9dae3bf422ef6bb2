# What one does in this repository. Each recipe is a few lines; what is clever stands in the scripts they call.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# A cluster and its context to use instead of the test bed's own: make demo CONTEXT=kind-kind
CONTEXT ?=
SCRIPTS = $(shell git grep -lE '^\#!/usr/bin/env bash')

.PHONY: help demo test check docs bench soak fuzz bed clean-bed

help: ## list what there is
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## install and bootstrap a real cluster, and watch (CONTEXT=… uses one of yours)
	cargo build --features test-tools --bins
	@$${CARGO_TARGET_DIR:-target}/debug/bed demo $(if $(CONTEXT),--context $(CONTEXT))

test: bed ## every test, against real etcd, Kubernetes, OpenTofu and Helm
	cargo test
	@.ci/if-there --suite go "the Go code of the test bed" .ci/go
	@.ci/if-there --suite npm "the GitHub Actions" .ci/actions
	@.ci/if-there --suite node "the report's page in a browser" .ci/page

check: ## all that CI asks: format, lints, docs, licences, scripts, then the tests
	cargo fmt --check
	@.ci/if-there shellcheck "the shell scripts" shellcheck --severity=warning $(SCRIPTS)
	@.ci/if-there cargo-deny "licences, bans and sources" cargo deny --log-level error check bans licenses sources
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items
	@.ci/if-there c++ "whether the fuzz targets compile" env RUSTFLAGS="--cfg fuzzing" \
	  cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target}/fuzz
	@$(MAKE) test

docs: bed ## write the pages of docs/reference that are made from the code and from what was seen
	DCCTL_BLESS=1 cargo test --test it -- docs:: cancel::matrix
	DCCTL_BLESS=1 cargo test --lib -- journals_for_the_browser

bench: bed ## measure what the design gives a budget for, beside a reference run
	cargo build --release
	cargo build --features test-tools --bin bed
	@benches/run

soak: bed ## the tests that draw lots, many more times
	DCCTL_SOAK=1 cargo test

fuzz: ## attack what reads text from outside, guided by coverage, ten minutes a target (needs nightly Rust and cargo-fuzz)
	@fuzz/run

bed: ## build what the tests and the demo run against (about 15 minutes the first time)
	@tests/bed/build >/dev/null

clean-bed: ## remove what that built; Go's own caches stay
	@tests/bed/build clean
