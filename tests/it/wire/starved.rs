//! Nothing that the machine or the run's surroundings withhold costs the lock: processors, or the names of hosts.

use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::Value;

use crate::bed::child::command;
use crate::bed::{Bed, Dcctl};
use crate::lock::rig::text;
use crate::wire::lane::{Lane, Namespace, all_at_once};

/// Four busy loops for each processor of this machine.
const BUSY: &str = "for one in $(seq $(($(nproc) * 4))); do (while [ ! -e @/go ]; do :; done) & done; wait";

#[test]
fn the_lock_is_renewed_in_time_while_the_command_keeps_every_processor_busy() {
    let bed = Bed::take();
    let lane = Lane::new(&bed, Namespace::There);
    let run = lane.started(lane.exec(BUSY));
    let at = |lease: &Value| -> Timestamp { text(&lease["spec"]["renewTime"]).parse().expect("a time") };
    // The first may still be what the command's beginning had to say.
    lane.renewed();
    let times: Vec<Timestamp> = (0..3).map(|_| at(&lane.renewed())).collect();
    let longest = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).max();
    assert!(longest < Some(20), "{longest:?} s between two renewals");
    lane.let_go();
    run.finish().expect_code(0);
    assert_eq!(lane.lease(), None);
}

/// What becomes of the connection that a run has, while no name can be looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Connection {
    Stays,
    IsCut,
}

#[test]
fn a_resolver_that_hangs_costs_neither_the_lock_nor_the_end_of_the_run() {
    let bed = Bed::take();
    let resolver = deaf_resolver(&bed);
    all_at_once(
        &[Connection::Stays, Connection::IsCut],
        2,
        |row| format!("{row:?}"),
        |connection| {
            let lane = Lane::new(&bed, Namespace::There);
            let run = lane.started(by_name(&lane).env("LD_PRELOAD", &resolver).env("BED_DEAF", lane.file("deaf")));
            fs::write(lane.file("deaf"), "").expect("the test's folder can be written");
            match connection {
                Connection::Stays => {
                    lane.renewed();
                    lane.renewed();
                }
                Connection::IsCut => {
                    lane.proxy.cut();
                    run.journal().wait_for("lock.renewal_failed", |_| true);
                    fs::remove_file(lane.file("deaf")).expect("it is there");
                    run.journal().wait_for("lock.renewed", |event| event["data"].get("gap_ms").is_some());
                }
            }
            lane.let_go();
            run.finish().expect_code(0);
            assert_eq!(lane.lease(), None);
        },
    );
}

/// A command that runs until it is let go, under a lock on a cluster that is known by a name.
fn by_name(lane: &Lane<'_>) -> Dcctl {
    let kubeconfig = lane.kubeconfig(|value| {
        for cluster in value["clusters"].as_array_mut().expect("a list") {
            let cluster = &mut cluster["cluster"];
            let server = text(&cluster["server"]).replace("127.0.0.1", "localhost");
            (cluster["server"], cluster["tls-server-name"]) = (server.into(), "127.0.0.1".into());
        }
    });
    lane.exec("while [ ! -e @/go ]; do sleep 0.2; done").with_kubeconfig(&kubeconfig)
}

/// A library in front of the resolver that waits as long as a file is there.
fn deaf_resolver(bed: &Bed) -> PathBuf {
    let source = bed.write("resolver.c", include_str!("resolver.c"));
    let library = bed.file("resolver.so");
    let done = command("cc".as_ref()).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(done.is_ok_and(|status| status.success()), "a C compiler is needed to test here");
    library
}
