//! The supervisor's own diagnostics: `DCCTL_LOG` says which, no tool hears of it, and no secret is in them.

use std::fs;

use crate::bed::dcctl::Finished;
use crate::bed::{Bed, Fault, Proxy, Rule};
use crate::refused::assert_nothing_secret;
use crate::refused::failing::Rig;

/// What the supervisor of this run said of itself.
#[track_caller]
fn log(finished: &Finished) -> String {
    let journal = finished.journal().expect("it was a run");
    fs::read_to_string(journal.path().with_file_name("supervisor.log")).expect("it is beside the journal")
}

#[test]
fn the_supervisor_says_what_it_is_asked_to_and_tools_do_not_hear_of_it() {
    let rig = Rig::new("verify: [{ name: All is well, run: [./environment.sh] }]\n");
    rig.script("environment.sh", &format!("env >{}", rig.bed.file("environment").display()));
    let run = || rig.bed.dcctl(["bootstrap", &Bed::instance(), "--bundle"]).arg(&rig.bundle);
    let quiet = run().run().expect_code(0);
    assert_eq!(log(&quiet), "");
    let told = run().env("DCCTL_LOG", "warn,dcctl=debug").env("DCCTL_COLOR", "never").run().expect_code(0);
    assert!(log(&told).contains("this process owns the run"), "{}", log(&told));
    let environment = fs::read_to_string(rig.bed.file("environment")).expect("the command ran");
    assert!(environment.contains("KUBECONFIG="), "{environment}");
    assert!(!environment.contains("DCCTL_LOG") && !environment.contains("DCCTL_COLOR"), "{environment}");
}

#[test]
fn however_much_it_says_no_secret_is_in_it() {
    let rig = Rig::new("");
    // A proxy that repeats the credential in an answer which is none: the client's library logs it whole.
    let token = &rig.bed.described().users["admin"].token;
    let proxy = Proxy::start(&rig.bed);
    let answer = Fault::Answer(403, format!("who is {token}?"));
    proxy.add(Rule::on("GET", "/instances").nth(1).request(answer));
    let run = rig.bed.dcctl(["bootstrap", &rig.instance, "--bundle"]).arg(&rig.bundle).env("DCCTL_LOG", "trace");
    let finished = run.with_kubeconfig(&proxy.kubeconfig("admin")).run();
    let log = log(&finished);
    assert!(log.contains("TRACE") && log.contains("who is [redacted]?"), "{log}");
    assert_nothing_secret(&rig.bed, &log);
}
