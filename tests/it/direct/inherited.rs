//! What whoever starts dcctl has set about signals: blocked and ignored ones are inherited, and change nothing.

use rustix::process::Signal;

use crate::bed::{Dcctl, untested};
use crate::direct::Rig;

/// Whether `env` of this machine can start something with such a signal; it is told with `why` when it cannot.
fn can(option: &str) -> bool {
    let tried = crate::bed::child::command(std::path::Path::new("env")).args([option, "true"]).output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        untested::say("an inherited signal", &format!("`env {option}` is not known here"));
    }
    can
}

fn started_with(option: &str, run: Dcctl) -> Dcctl {
    run.by_shell(&format!("exec env {option} \"$@\"")).with_pipes()
}

/// Which signals the command finds blocked and ignored.
const SIGNALS: &str = "grep -E '^Sig(Blk|Ign)' /proc/self/status > @/signals";

/// None is blocked, and none ignored but SIGHUP. Signals 32 and 33 are the C library's own: it ignores them in what it
/// starts, and lets nobody ask for anything else.
#[track_caller]
fn assert_clean(rig: &Rig) {
    let found = rig.read("signals").expect("the command wrote it");
    let mask = |name: &str| {
        let line = found.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
        u64::from_str_radix(line.trim(), 16).expect("a mask") & !(0b11 << 31)
    };
    assert_eq!((mask("SigBlk:"), mask("SigIgn:")), (0, 1), "{found}");
}

#[test]
fn who_ignores_the_end_of_children_or_anything_else_can_start_a_run() {
    let rig = Rig::new();
    for option in ["--ignore-signal=CHLD", "--ignore-signal=PIPE,INT,QUIT,TERM,USR1,ALRM,TSTP,TTOU"] {
        if can(option) {
            let script = format!("sh -c 'exit 3'; [ $? = 3 ] && {SIGNALS}");
            started_with(option, rig.sh(&[], &script)).run().expect_code(0);
            assert_clean(&rig);
        }
    }
}

#[test]
fn a_request_to_stop_is_heard_and_a_command_hears_it_though_every_signal_was_blocked() {
    let rig = Rig::new();
    if !can("--block-signal") {
        return;
    }
    started_with("--block-signal", rig.sh(&[], SIGNALS)).run().expect_code(0);
    assert_clean(&rig);
    let script = "trap ': > @/heard; exit 0' INT TERM; : > @/up; while :; do sleep 0.05; done";
    let run = started_with("--block-signal", rig.sh(&[], script)).start();
    rig.wait_for("up");
    run.signal(Signal::TERM);
    run.finish().expect_code(10);
    assert_eq!(rig.read("heard").as_deref(), Some(""));
    assert_eq!(rig.lease(), None);
}
