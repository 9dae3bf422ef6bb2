//! Front and supervisor are killed together: nobody signals OpenTofu, which finishes alone and writes its state. The lock
//! stays, and the next run on this machine says how that one ended.

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::Finished;
use crate::bed::wait;
use crate::stopping::rig::Rig;

/// Long enough that the next run comes while the creation is in flight.
const CREATION: f64 = 12.0;

/// What a run says of the one before.
fn said(finished: &Finished) -> Vec<String> {
    let events = finished.events();
    let notes = events.iter().filter(|event| event["type"] == "note.made").map(|event| &event["data"]["text"]);
    let notes = notes.filter_map(Value::as_str).filter(|note| note.contains("was killed with both of its processes"));
    notes.map(str::to_owned).collect()
}

#[test]
fn after_both_were_killed_opentofu_finishes_alone_and_the_next_run_says_how_it_ended() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let (supervisor, holder) = (run.supervisor(), rig.lease().expect("it is held"));
    let folder = rig.run_folders().pop().expect("a run has one");
    let will = "/metadata/annotations/dcctl.devicechain.io~1children";
    wait::fact("its last will", || rig.lease_says(will).starts_with("tofu apply (process ").then_some(()));
    // The front has no time to see that the supervisor is gone.
    run.signal(Signal::STOP);
    rustix::process::kill_process(supervisor, Signal::KILL).expect("it runs");
    run.signal(Signal::KILL);
    assert_eq!(run.finish().killed_by(), Some(9));

    let meanwhile = rig.start().finish().expect_code(20);
    let [note] = &said(&meanwhile)[..] else { panic!("{:?}", said(&meanwhile)) };
    for part in ["tofu apply (process ", "is still at work", &holder, &rig.state_dir().display().to_string()] {
        assert!(note.contains(part), "{part:?}: {note}");
    }
    assert!(folder.join("kubeconfig").exists(), "a tool at work lost its credentials");

    wait::fact("the rest to be created", || (rig.created("after") == 1).then_some(()));
    wait::fact("nothing of the run to be left", || rig.bed().mark().pids().is_empty().then_some(()));
    assert_eq!(rig.lease(), Some(holder.clone()), "a person gives it back");
    assert!(rig.lease_says(will).starts_with("tofu apply (process "), "who looks is not told what was at work");
    assert_eq!(rig.in_state().len(), 3);

    let next = rig.start().finish().expect_code(20);
    let [note] = &said(&next)[..] else { panic!("{:?}", said(&next)) };
    for part in ["has ended by itself: it came to its end (3 added", &folder.display().to_string(), &holder] {
        assert!(note.contains(part), "{part:?}: {note}");
    }
    for name in ["kubeconfig", "private", "ballast", "run.json"] {
        assert!(!folder.join(name).exists(), "{name} was left");
    }
    assert!(folder.join("events.jsonl").exists());
    assert_eq!(said(&rig.start().finish().expect_code(20)), Vec::<String>::new(), "it is said once");
}
