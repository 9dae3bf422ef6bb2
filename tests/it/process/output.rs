//! What a tool is given, and what it says.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use dcctl::clock::{Clock, System};
use dcctl::failure::Code;
use dcctl::process::{Directly, Exit, Manner, Stream, Update, drive, stop_channel};

use crate::process::{Bench, count, lines, output, play, run, short, signal, wait_for};

#[tokio::test]
async fn a_tool_gets_a_complete_environment_its_folder_and_nothing_to_read() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::Query, "variables folder descriptors variable=DCCTL_RUN complain=warning exit=7");
    let (tag, folder) = (spec.tag.clone(), bench.folder.path().canonicalize().expect("a folder"));
    let (ended, updates) = run(spec).await;
    assert_eq!(ended.exit, Exit::Code(7));
    let stdout = lines(&updates, Stream::Stdout);
    assert_eq!(stdout[..3], ["DCCTL_RUN".to_owned(), "GIVEN".to_owned(), folder.display().to_string()]);
    assert_eq!(stdout.last(), Some(&format!("DCCTL_RUN={tag}")));
    let descriptors: Vec<&str> = stdout[3..stdout.len() - 1].iter().map(String::as_str).collect();
    let outputs = [bench.path("stdout"), bench.path("stderr")].map(|path| path.display().to_string());
    assert_eq!(descriptors, ["0 /dev/null".to_owned(), format!("1 {}", outputs[0]), format!("2 {}", outputs[1])]);
    assert_eq!(lines(&updates, Stream::Stderr), ["warning"]);
    for name in ["stdout", "stderr", "record.ended"] {
        let mode = std::fs::metadata(bench.path(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert!(matches!(updates.first(), Some(Update::Started { .. })));
    assert!(matches!(updates.last(), Some(Update::Finished { exit: Exit::Code(7), .. })));
}

#[tokio::test]
async fn a_tool_survives_a_hangup_and_is_in_a_group_of_its_own() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::OpenTofu, "file=@/ready until=@/go print=survived");
    let (ended, updates) = play(spec, short(), async |_| {
        let pid = bench.pid("ready").await;
        signal(pid, rustix::process::Signal::HUP);
        let raw = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a number"));
        assert_eq!(rustix::process::getpgid(raw).expect("it lives"), raw.expect("a number"));
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert_eq!((ended.exit, lines(&updates, Stream::Stdout)), (Exit::Code(0), vec!["survived".to_owned()]));
}

#[tokio::test]
async fn everything_printed_is_handed_on_before_the_end_is_said() {
    let bench = Bench::new();
    let (ended, updates) = run(bench.spec(Manner::OpenTofu, "lines=50000 complain=last part=unfinished exit=1")).await;
    let stdout = lines(&updates, Stream::Stdout);
    assert_eq!((stdout.len(), ended.exit), (50_001, Exit::Code(1)));
    assert!(stdout[..50_000].iter().enumerate().all(|(number, line)| *line == format!("line {number}")));
    assert_eq!(stdout[50_000], "unfinished");
    assert!(matches!(updates.last(), Some(Update::Finished { .. })));
}

#[tokio::test]
async fn a_slow_reader_of_lines_delays_neither_a_signal_nor_a_sign() {
    struct Full(Arc<Mutex<Vec<Update>>>, Arc<Mutex<bool>>);
    impl dcctl::process::Sink for Full {
        fn take(&mut self, update: Update) {
            self.0.lock().expect("whole").push(update);
        }
        fn room(&self) -> dcctl::process::Room {
            if *self.1.lock().expect("whole") { dcctl::process::Room::Some } else { dcctl::process::Room::None }
        }
    }
    let bench = Bench::new();
    let (updates, room) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(false)));
    let (stopper, stop) = stop_channel();
    let spec =
        bench.spec(Manner::OpenTofu, "lines=1000 on=INT { print=INTERRUPTED exit=1 } file=@/ready until=@/never");
    let sink = Full(updates.clone(), room.clone());
    let driven = drive(spec, short(), stop, &System, sink);
    let act = async {
        bench.pid("ready").await;
        stopper.graceful(System.now(), Directly::No);
        wait_for(|| bench.path("record.ended").exists()).await;
        let said = updates.lock().expect("whole").clone();
        assert_eq!(count(&said, |update| matches!(update, Update::InterruptReported { times: 1, sent: 1 })), 1);
        assert_eq!(lines(&said, Stream::Stdout), [""; 0]);
        *room.lock().expect("whole") = true;
    };
    let (ended, ()) = tokio::join!(driven, act);
    assert_eq!(ended.expect("started").exit, Exit::Code(1));
    assert_eq!(lines(&updates.lock().expect("whole"), Stream::Stdout).len(), 1001);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_missing_tool() {
    let bench = Bench::new();
    let mut spec = bench.spec(Manner::Query, "");
    spec.program = bench.path("nothing");
    let (_stopper, stop) = stop_channel();
    let failure = drive(spec, short(), stop, &System, |_| {}).await.expect_err("it is not there");
    assert_eq!(failure.code, Code::ToolMissing);
    assert!(failure.message.contains("nothing"), "{failure}");
}

#[tokio::test]
async fn dropping_the_drive_leaves_the_tool_alone() {
    let bench = Bench::new();
    let (_stopper, stop) = stop_channel();
    let spec = bench.spec(Manner::OpenTofu, "file=@/ready until=@/go file=@/done");
    let driven = drive(spec, short(), stop, &System, |_| {});
    tokio::select! {
        _ = driven => panic!("it waits for a file that is not there yet"),
        _ = bench.pid("ready") => {}
    }
    std::fs::write(bench.path("go"), "").expect("written");
    bench.pid("done").await;
}

#[tokio::test]
async fn a_million_lines_take_no_memory() {
    let bench = Bench::new();
    let peak = |said: &str| -> u64 {
        let line = said.lines().find_map(|line| line.strip_prefix("peak ")).expect("a peak");
        line.parse().expect("a number")
    };
    let few = peak(&output("drive=@ { lines=10 } peak", &bench));
    let said = output("drive=@ { lines=1000000 bytes=20000000 } peak", &bench);
    // Ten lines of the run before are still in the file, which is only ever appended to.
    let pieces = 20_000_000_u64.div_ceil(8 * 1024);
    assert!(said.contains(&format!("{} lines\n", 1_000_010 + pieces)), "{said}");
    let many = peak(&said);
    assert!(many < few + 4096, "{many} kB after a million lines, {few} kB after ten");
}
