//! `bed demo`: what `make demo` shows, on a cluster that stays.

use std::path::Path;
use std::process::Output;

use crate::bed::child::{Mark, command};
use crate::bed::tools::own;
use crate::bed::{Bed, Tools};

/// `make demo CONTEXT=bed` as somebody types it who has this cluster and nothing of the bed on PATH, and in CI.
fn demo(bed: &Bed, results: &Path) -> Output {
    let mut demo = command(&own("bed"));
    demo.args(["demo", "--context", "bed", "--results"]).arg(results);
    demo.env("KUBECONFIG", bed.kubeconfig("admin")).env("CI", "true").env("HOME", results.join("their-home"));
    // What is built already is found without HOME, and what the demo starts is found by its mark.
    let tools = Tools::get();
    let cache = tools.path("tofurc").ancestors().nth(2).expect("it is in a folder of the cache");
    demo.envs(tools.variables()).env("DCCTL_BED_HOME", cache).env(Mark::VARIABLE, bed.mark().value());
    demo.output().expect("it starts")
}

#[test]
fn a_second_demo_on_a_cluster_builds_the_next_instance_beside_the_first() {
    let bed = Bed::take();
    let results = tempfile::tempdir().expect("the temporary folder can be written");
    for name in ["demo", "demo-2"] {
        let output = demo(&bed, results.path());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(&format!("$ dcctl bootstrap {name} ")), "{said}");
        assert!(said.contains(&format!("The instance {name} stays on the cluster")), "{said}");
    }
    // kubectl and Helm have their caches there. What is dcctl's is the demo's.
    for folder in [".devicechain", ".local"] {
        assert!(!results.path().join("their-home").join(folder).exists(), "{folder} was made in the home of the user");
    }
}
