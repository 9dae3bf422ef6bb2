//! What the pages show as a `bundle.yaml`, and the bundles of the fixtures, satisfy the schema that editors check with.

use serde_json::Value;

use super::{pages, read};
use crate::tree;

#[test]
fn every_whole_bundle_that_is_shown_satisfies_the_schema() {
    let schema: Value = serde_json::from_str(&read("docs/reference/bundle.schema.json")).expect("it is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    let mut bundles = Vec::new();
    for file in tree::texts() {
        let is_bundle = || file.text.lines().any(|line| line == "kind: Bundle");
        if file.path.ends_with("/bundle.yaml") && is_bundle() {
            bundles.push((file.path, file.text));
        }
    }
    for page in pages() {
        let blocks = page.text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
        let whole = blocks.filter(|block| block.lines().any(|line| line == "kind: Bundle"));
        bundles.extend(whole.map(|block| (page.path.clone(), block.to_owned())));
    }
    for wanted in ["fixtures/demo/bundle.yaml", "docs/reference/bundle.md"] {
        assert!(bundles.iter().any(|(path, _)| path == wanted), "{wanted} is not looked at");
    }
    let mut offences = Vec::new();
    for (path, text) in bundles {
        let bundle: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let errors = validator.iter_errors(&bundle);
        offences.extend(errors.map(|error| format!("{path}: {}: {error}", error.instance_path())));
    }
    tree::obey("these bundles do not satisfy docs/reference/bundle.schema.json:", &offences);
}
