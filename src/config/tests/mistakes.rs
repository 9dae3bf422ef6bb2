//! A table of ways to get a bundle wrong, with all that is said then.

use crate::config::tests::{GOOD, Place, demo};

/// Ways to get the good bundle wrong: what to replace, by what, and all that is said then.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    // Unknown keys.
    (
        "    path: chart",
        "    pth: chart",
        &[
            "bundle.yaml:19:5: instance.chart.path: is missing (the first of 2 mistakes)",
            "bundle.yaml:19:5: instance.chart.pth: unknown key; did you mean `path`?",
        ],
    ),
    ("cluster: {", "clutser: {", &["bundle.yaml:31:1: clutser: unknown key; did you mean `cluster`?"]),
    ("maxConnections: 600", "nodes: 3", &["bundle.yaml:31:12: cluster.nodes: unknown key; known are maxConnections"]),
    // Placeholders.
    (
        "namespace: \"dci-${instance}\"",
        "namespace: \"dci-${instnce}\"",
        &["bundle.yaml:13:14: instance.namespace: unknown placeholder `${instnce}`; did you mean `${instance}`?"],
    ),
    (
        "namespace: \"dci-${instance}\"",
        "namespace: \"${namespace}\"",
        &[
            "bundle.yaml:13:14: instance.namespace: `${namespace}` is the instance's namespace, which is known under `instance`, `images` and `verify` only",
        ],
    ),
    (
        "provider: existing",
        "provider: [{ a: \"${x}\" }]",
        &[
            "bundle.yaml:29:29: instance.declaration.spec.provider[0].a: unknown placeholder `${x}`; known are ${instance}, ${kube_context}, ${kubeconfig}, ${namespace}, ${version}, ${run_id} and ${var.NAME}, and `$${` is a plain `${`",
        ],
    ),
    (
        "root: infra/cluster",
        "root: \"infra/${instance}\"",
        &[
            "bundle.yaml:9:9: prerequisites.root: `${instance}` is not known here: this belongs to the cluster, and to no instance",
        ],
    ),
    (
        "manifests: operator/",
        "manifests: \"${var.site}\"",
        &["bundle.yaml:6:14: operator.manifests: there is no `demo-site` in the bundle"],
    ),
    (
        "version: 0.9.2",
        "version: \"${version}\"",
        &[
            "bundle.yaml:3:11: metadata: `${version}` is not known here: name and version say what the bundle is (the first of 2 mistakes)",
            "bundle.yaml:3:34: metadata.version: `${version}` is not a version: letters, digits and `.-_+`, a letter or digit first",
        ],
    ),
    (
        "site: \"${instance}-site\"",
        "site: \"${var.mqtt_port}\"",
        &[
            "bundle.yaml:32:32: vars.site: `${var.mqtt_port}` is itself a variable, and a default cannot be made from one",
        ],
    ),
    (
        "note: \"${var.note}\"",
        "note: \"${var.nte}\"",
        &[
            "bundle.yaml:16:98: instance.infrastructure.vars.note: `${var.nte}` has no value: give it with --var nte=…, --var-file or DCCTL_VAR_NTE, or a default under `vars`",
        ],
    ),
    (
        "note: \"${var.note}\"",
        "note: \"${var.db_password}\"",
        &[
            "bundle.yaml:16:98: instance.infrastructure.vars.note: `${var.db_password}` is a secret of this bundle, which may only be named under `secrets`",
        ],
    ),
    (
        "mqtt_port: 1883",
        "mqtt_port: 1883, root_key: x",
        &["bundle.yaml:32:26: vars.root_key: is a secret of this bundle, and a bundle carries none; take it out here"],
    ),
    // Types.
    (
        "version: 0.9.2",
        "version: 1.10",
        &["bundle.yaml:3:34: metadata.version: text in quotes belongs here, not a number"],
    ),
    (
        "values: [values.yaml]",
        "values: values.yaml",
        &["bundle.yaml:21:13: instance.chart.values: a list belongs here, not text"],
    ),
    (
        "chart:\n",
        "chart: chart\n  chat:\n",
        &[
            "bundle.yaml:18:10: instance.chart: a map belongs here, not text (the first of 2 mistakes)",
            "bundle.yaml:19:3: instance.chat: unknown key; did you mean `chart`?",
        ],
    ),
    (
        "timeout: 90s",
        "timeout: 90",
        &["bundle.yaml:25:14: instance.chart.timeout: a duration needs its unit, like 90s, 10m or 1h30m"],
    ),
    (
        "timeout: 90s",
        "timeout: soon",
        &["bundle.yaml:25:14: instance.chart.timeout: write a duration like 90s, 10m or 1h30m"],
    ),
    (
        "connections: 60 ",
        "connections: many ",
        &["bundle.yaml:30:101: instance.claims.connections: a number belongs here, not text"],
    ),
    (
        "connections: 60 ",
        "connections: 0 ",
        &["bundle.yaml:30:101: instance.claims.connections: a whole number from 1 to 4294967295 belongs here"],
    ),
    (
        "[\"make\", \"images\"]",
        "[]",
        &["bundle.yaml:4:18: images.build: is empty; a program belongs here, and its arguments"],
    ),
    // Paths.
    (
        "root: infra/instance",
        "root: ../elsewhere",
        &["bundle.yaml:15:11: instance.infrastructure.root: `../elsewhere` leaves the bundle"],
    ),
    (
        "root: infra/instance",
        "root: infra",
        &[
            "bundle.yaml:15:11: instance.infrastructure.root: there is no .tf or .tofu file in it, so it is not an OpenTofu root",
        ],
    ),
    (
        "path: chart",
        "path: operator",
        &["bundle.yaml:19:11: instance.chart.path: there is no Chart.yaml in it, so it is not a Helm chart"],
    ),
    (
        "[values.yaml]",
        "[values.yaml, more.yaml]",
        &["bundle.yaml:21:27: instance.chart.values[1]: there is no `more.yaml` in the bundle"],
    ),
    (
        "manifests: operator/",
        "manifests: chart/templates",
        &["bundle.yaml:6:14: operator.manifests: there is no `chart/templates` in the bundle"],
    ),
    (
        "./verify.sh",
        "/bin/sh",
        &["bundle.yaml:33:37: verify[0].run[0]: `/bin/sh` is absolute, and paths are relative to the bundle"],
    ),
    (
        "./verify.sh",
        "./values.yaml",
        &["bundle.yaml:33:37: verify[0].run[0]: `./values.yaml` may not be run: chmod +x"],
    ),
    // Names.
    (
        "namespace: \"dci-${instance}\"",
        "namespace: default",
        &[
            "bundle.yaml:13:14: instance.namespace: `default` is the namespace that everybody uses; an instance has one of its own",
        ],
    ),
    (
        "namespace: \"dci-${instance}\"",
        "namespace: dc-k8s-system",
        &[
            "bundle.yaml:13:14: instance.namespace: `dc-k8s-system` is the namespace that holds the cluster's lock; an instance has one of its own",
        ],
    ),
    (
        "namespace: \"dci-${instance}\"",
        "namespace: kube-system",
        &[
            "bundle.yaml:13:14: instance.namespace: `kube-system` is a namespace of Kubernetes itself; an instance has one of its own",
        ],
    ),
    (
        "namespace: \"dci-${instance}\"",
        "namespace: \"Dci_${instance}\"",
        &[
            "bundle.yaml:13:14: instance.namespace: `Dci_demo` is not a DNS label: lower-case letters, digits and hyphens, a letter or digit at both ends",
        ],
    ),
    (
        "release: \"dc-${instance}\"",
        "release: \"a-very-long-name-for-a-release-of-the-chart-of-an-${instance}\"",
        &[
            "bundle.yaml:20:14: instance.chart.release: `a-very-long-name-for-a-release-of-the-chart-of-an-demo` has 54 characters, and at most 53 are allowed",
        ],
    ),
    (
        "core.devicechain.io/v1beta1",
        "v1",
        &[
            "bundle.yaml:28:17: instance.declaration.apiVersion: `v1` is not a version of `core.devicechain.io`, like `core.devicechain.io/v1beta1`",
        ],
    ),
    (
        "verify: [",
        "verify: [{ name: API answers, run: [true] }, ",
        &["bundle.yaml:33:37: verify[0].run[0]: text in quotes belongs here, not true or false"],
    ),
    (
        "verify: [",
        "verify: [{ name: API answers, run: [\"true\"] }, ",
        &["bundle.yaml:33:48: verify[1]: a second command is called `API answers`"],
    ),
    // Chart values.
    (
        "outputs: { broker.ca: nats_ca }",
        "outputs: { instance: nats_ca, a..b: x }",
        &[
            "bundle.yaml:23:16: instance.chart.outputs.instance: sets what `instance.chart.set[\"instance.id\"]` sets too (the first of 2 mistakes)",
            "bundle.yaml:23:35: instance.chart.outputs[\"a..b\"]: `a..b` has an empty name in it",
        ],
    ),
    (
        "secrets: { db_password: db_password }",
        "secrets: { name: db_password }",
        &["bundle.yaml:15:5: instance.infrastructure: `name` is under `vars` and under `secrets`"],
    ),
    // Secrets.
    (
        "db_password: db_password",
        "db_password: database",
        &[
            "bundle.yaml:17:29: instance.infrastructure.secrets.db_password: the secret `database` is not given: set DCCTL_VAR_DATABASE, or give it in a --var-file",
        ],
    ),
    // What is missing.
    ("metadata: { name: shop, version: 0.9.2 }\n", "", &["bundle.yaml:1:1: metadata: is missing"]),
    (
        "metadata: { name: shop, version: 0.9.2 }",
        "metadata: { name: shop, version: }",
        &["bundle.yaml:3:25: metadata.version: is missing"],
    ),
];

#[test]
fn every_mistake_is_said_with_file_line_and_field() {
    for (right, wrong, expected) in MISTAKES {
        assert!(GOOD.contains(right), "{right}");
        let place = Place::new(&GOOD.replacen(right, wrong, 1));
        assert_eq!(place.said(&demo()), *expected, "{wrong}");
    }
}
