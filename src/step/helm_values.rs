//! The values file that dcctl gives to Helm: what the bundle sets, what OpenTofu gave, and the chart's secrets.
//!
//! One file, readable by this user alone, so that nothing secret is an argument. It is JSON, which is YAML too, and
//! keeps every type.

use serde_json::{Map, Value};

use crate::config::{Chart, dotted};
use crate::failure::{Code, Failure};
use crate::step::tofu_outputs::{Given, Outputs};

/// What stands for an output that a dry run cannot know.
const UNKNOWN: &str = "(known after apply)";

/// Makes the values.
///
/// # Errors
/// [`Code::BundleInvalid`] when a key cannot be read or the root has no such output.
pub(crate) fn values(chart: &Chart, outputs: &Outputs) -> Result<Map<String, Value>, Failure> {
    let mut values = Map::new();
    for (key, value) in &chart.set {
        put(&mut values, key, value.clone())?;
    }
    for (key, name) in &chart.outputs {
        put(&mut values, key, output(outputs, name, key)?)?;
    }
    for (key, secret) in &chart.secrets {
        put(&mut values, key, Value::String(secret.expose().to_owned()))?;
    }
    Ok(values)
}

fn output(outputs: &Outputs, name: &str, key: &str) -> Result<Value, Failure> {
    match outputs.get(name) {
        Some(Given::Plain(value)) => Ok(value),
        Some(Given::Unknown) => Ok(Value::String(UNKNOWN.to_owned())),
        Some(Given::Sensitive(secret)) => {
            Ok(serde_json::from_str(secret.expose()).expect("a sensitive output was written as JSON by us"))
        }
        None => {
            let sentence =
                format!("the chart value `{key}` comes from output `{name}`, which the infrastructure has not");
            Err(Failure::new(Code::BundleInvalid, sentence).hint("mend instance.chart.outputs, or the root's outputs"))
        }
    }
}

fn put(values: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), Failure> {
    let names = dotted::segments(key)
        .map_err(|why| Failure::new(Code::BundleInvalid, format!("the chart value `{key}` {why}")))?;
    dotted::insert(values, &names, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Secret;
    use serde_json::json;
    use std::path::PathBuf;
    use std::time::Duration;

    fn chart() -> Chart {
        Chart {
            path: PathBuf::from("chart"),
            release: "dc-demo".to_owned(),
            namespace: "dci-demo".to_owned(),
            values: Vec::new(),
            set: Map::from_iter([("instance.id".to_owned(), json!("dci-demo")), ("replicas".to_owned(), json!(2))]),
            outputs: [("broker.ca".to_owned(), "nats_ca".to_owned())].into(),
            secrets: [("secrets.rootKey".to_owned(), Secret::from("123".to_owned()))].into(),
            timeout: Duration::from_secs(600),
        }
    }

    #[test]
    fn dotted_keys_become_maps_and_types_stay() {
        let outputs = Outputs::default();
        outputs.put("nats_ca", Given::Sensitive(Secret::from(json!({"pem": ["a"]}).to_string())));
        let expected = json!({
            "instance": { "id": "dci-demo" },
            "replicas": 2,
            "broker": { "ca": { "pem": ["a"] } },
            "secrets": { "rootKey": "123" }
        });
        assert_eq!(values(&chart(), &outputs).map(Value::Object), Ok(expected));
    }

    #[test]
    fn an_output_that_is_not_there_is_named() {
        let failure = values(&chart(), &Outputs::default()).expect_err("there is none");
        assert_eq!(failure.code, Code::BundleInvalid);
        assert!(failure.message.contains("`broker.ca`") && failure.message.contains("`nats_ca`"), "{failure}");
    }

    #[test]
    fn a_dry_run_has_a_word_for_what_it_cannot_know() {
        let outputs = Outputs::default();
        outputs.put("nats_ca", Given::Unknown);
        assert_eq!(values(&chart(), &outputs).expect("values")["broker"]["ca"], json!(UNKNOWN));
    }
}
