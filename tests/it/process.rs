//! Real children: what the process room does to them, seen from outside.
//!
//! Every wait is for a fact (a file, an update, an end). The limits are the shortest that still tell one rule from
//! another.

use std::ffi::OsString;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::failure::Code;
use dcctl::process::{
    Directly, Ended, Exit, Fate, Intent, Launch, Life, Limits, Manner, Recorded, Sign, Spec, Stopper, Stream,
    ToolSignal, Update, Why, drive, spawn, stop_channel,
};
use tempfile::TempDir;

const TOOL: &str = env!("CARGO_BIN_EXE_fake-tool");

/// Longer than any wait of a test may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tool that would never end by itself within a test.
const FOREVER: &str = "wait=600000";

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spec(&self, manner: Manner, args: &str) -> Spec {
        let folder = self.folder.path().display().to_string();
        let args = args.split_whitespace().map(|argument| OsString::from(argument.replace('@', &folder))).collect();
        Spec {
            name: "fake-tool".to_owned(),
            program: PathBuf::from(TOOL),
            args,
            env: vec![("GIVEN".into(), "yes".into())],
            cwd: self.folder.path().to_owned(),
            stdout: self.path("stdout"),
            stderr: self.path("stderr"),
            tag: format!("test/{}", self.folder.path().display()),
            manner,
            signs,
            record: self.path("record"),
            timeout: None,
        }
    }

    /// The process number that a tool wrote to a file; waits for the file.
    async fn pid(&self, name: &str) -> u32 {
        let path = self.path(name);
        wait_for(|| path.exists()).await;
        std::fs::read_to_string(path).expect("complete").parse().expect("a number")
    }
}

fn signs(line: &str) -> Option<Sign> {
    match line {
        "INTERRUPTED" => Some(Sign::Interrupted),
        "CONCLUDED" => Some(Sign::Concluded),
        "OPENED" => Some(Sign::Opened),
        "CLOSED" => Some(Sign::Closed),
        _ => None,
    }
}

async fn wait_for(fact: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    waited.await.expect("the fact came in time");
}

fn lives(pid: u32) -> bool {
    Life::of(pid).is_ok_and(|life| !life.is_over())
}

/// Short waits, in the same order as the real ones.
fn short() -> Limits {
    let millis = Duration::from_millis;
    Limits {
        budget: millis(1500),
        watchdog: millis(20_000),
        hold: millis(100),
        hold_directly: millis(400),
        last_grace: millis(300),
        second_interrupt: millis(100),
        query_grace: millis(300),
        sweep_grace: millis(300),
        concluded_silence: millis(200),
        idle_silence: millis(600),
    }
}

/// What a test may do while its tool runs.
struct Hand {
    stopper: Stopper,
    updates: Arc<Mutex<Vec<Update>>>,
}

impl Hand {
    fn stop(&self) {
        self.stopper.graceful(System.now(), Directly::No);
    }

    async fn seen(&self, fact: impl Fn(&Update) -> bool) {
        wait_for(|| self.updates.lock().expect("whole").iter().any(&fact)).await;
    }
}

/// Drives a tool while `act` acts on it. Returns how it ended and all that was said.
async fn play<F: Future<Output = ()>>(
    spec: Spec,
    limits: Limits,
    act: impl FnOnce(Arc<Hand>) -> F,
) -> (Ended, Vec<Update>) {
    let (stopper, stop) = stop_channel();
    let updates = Arc::new(Mutex::new(Vec::new()));
    let hand = Arc::new(Hand { stopper, updates: updates.clone() });
    let sink = |update| updates.lock().expect("whole").push(update);
    let driven = tokio::time::timeout(PATIENCE, drive(spec, limits, stop, &System, sink));
    let (ended, ()) = tokio::join!(driven, act(hand.clone()));
    let ended = ended.expect("it ended in time").expect("it was started");
    let updates = updates.lock().expect("whole").clone();
    (ended, updates)
}

async fn run(spec: Spec) -> (Ended, Vec<Update>) {
    play(spec, short(), |_| async {}).await
}

fn lines(updates: &[Update], wanted: Stream) -> Vec<String> {
    updates
        .iter()
        .filter_map(|update| match update {
            Update::Line { stream, text, .. } if *stream == wanted => Some(text.clone()),
            _ => None,
        })
        .collect()
}

fn count(updates: &[Update], fact: impl Fn(&Update) -> bool) -> usize {
    updates.iter().filter(|update| fact(update)).count()
}

fn is_interrupt(update: &Update) -> bool {
    matches!(update, Update::Interrupted { .. })
}

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
async fn twenty_requests_are_one_interrupt() {
    let bench = Bench::new();
    let counting = "on=INT { print=INTERRUPTED file=@/interrupted } file=@/ready until=@/go";
    let (ended, updates) = play(bench.spec(Manner::OpenTofu, counting), Limits::default(), async |hand| {
        bench.pid("ready").await;
        for _ in 0..20 {
            hand.stop();
        }
        bench.pid("interrupted").await;
        for _ in 0..20 {
            hand.stop();
        }
        hand.seen(|update| matches!(update, Update::InterruptReported { .. })).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert_eq!(lines(&updates, Stream::Stdout), ["INTERRUPTED"]);
    assert_eq!(count(&updates, is_interrupt), 1);
    assert_eq!((ended.interrupts_sent, ended.interrupts_reported, ended.exit), (1, 1, Exit::Code(0)));
    assert!(ended.is_clean());
    let (recorded, intent) = Recorded::read(&bench.path("record")).expect("readable").expect("there");
    assert_eq!((recorded.pid, intent), (ended.pid, Intent::Ended));
    assert!(recorded.is_over());
}

#[tokio::test]
async fn a_tool_that_the_system_interrupted_gets_no_second_interrupt() {
    let bench = Bench::new();
    let counting = "on=INT { print=INTERRUPTED file=@/interrupted } file=@/ready until=@/go";
    let (ended, updates) = play(bench.spec(Manner::OpenTofu, counting), short(), async |hand| {
        let pid = bench.pid("ready").await;
        // A system that signals every process: the tool and us.
        signal(pid, rustix::process::Signal::INT);
        hand.stop();
        hand.seen(|update| matches!(update, Update::InterruptReported { times: 1, sent: 0 })).await;
        // Longer than our own interrupt is held back.
        tokio::time::sleep(short().hold * 3).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert_eq!(lines(&updates, Stream::Stdout), ["INTERRUPTED"]);
    assert_eq!((ended.interrupts_sent, ended.interrupts_reported), (0, 1));
    assert!(ended.is_clean());
}

#[tokio::test]
async fn a_second_interrupt_from_outside_is_counted_and_said() {
    let bench = Bench::new();
    let counting = "on=INT { print=INTERRUPTED } file=@/ready until=@/go";
    let (ended, _) = play(bench.spec(Manner::OpenTofu, counting), Limits::default(), async |hand| {
        let pid = bench.pid("ready").await;
        hand.stop();
        hand.seen(|update| matches!(update, Update::InterruptReported { times: 1, sent: 1 })).await;
        signal(pid, rustix::process::Signal::INT);
        hand.seen(|update| matches!(update, Update::InterruptReported { times: 2, sent: 1 })).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert!(!ended.is_clean());
}

#[tokio::test]
async fn a_tool_that_ignores_its_interrupt_is_ended_after_the_budget() {
    let bench = Bench::new();
    let deaf = format!("on=INT {{ file=@/deaf }} file=@/ready {FOREVER}");
    let (ended, updates) = play(bench.spec(Manner::OpenTofu, &deaf), short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    let interrupts: Vec<Why> = updates
        .iter()
        .filter_map(|update| match update {
            Update::Interrupted { why, signal: ToolSignal::Interrupt, .. } => Some(*why),
            _ => None,
        })
        .collect();
    assert_eq!(interrupts, [Why::StopRequested, Why::BudgetEnded]);
    assert_eq!((ended.exit, ended.killed, ended.why), (Exit::Signal(9), true, Some(Why::BudgetEnded)));
    assert!(ended.took >= short().budget + short().last_grace);
    assert!(!ended.is_clean());
}

#[tokio::test]
async fn force_ends_a_deaf_tool_and_all_that_it_started() {
    let bench = Bench::new();
    let deaf = format!(
        "on=INT {{ }} spawn {{ setsid quiet on=TERM {{ }} file=@/grandchild {FOREVER} }} until=@/grandchild file=@/ready {FOREVER}"
    );
    let (ended, _) = play(bench.spec(Manner::OpenTofu, &deaf), short(), async |hand| {
        bench.pid("ready").await;
        hand.stopper.force(System.now());
    })
    .await;
    assert_eq!((ended.exit, ended.why), (Exit::Signal(9), Some(Why::Forced)));
    assert_eq!(ended.left_behind.len(), 1);
    assert!(!lives(bench.pid("grandchild").await));
}

#[tokio::test]
async fn a_query_that_does_not_heed_its_interrupt_is_killed_soon() {
    let bench = Bench::new();
    let deaf = format!("on=INT {{ }} file=@/ready {FOREVER}");
    let (ended, updates) = play(bench.spec(Manner::Query, &deaf), short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    assert_eq!((ended.exit, ended.why), (Exit::Signal(9), Some(Why::StopRequested)));
    assert_eq!(count(&updates, is_interrupt), 1);
    assert!(ended.took < PATIENCE);
}

#[tokio::test]
async fn what_must_not_be_signalled_is_left_to_end_by_itself() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::Unsignalled, "file=@/ready until=@/go exit=3");
    let (ended, updates) = play(spec, short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
        tokio::time::sleep(short().hold * 3).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert_eq!((ended.exit, ended.interrupts_sent, ended.why), (Exit::Code(3), 0, None));
    assert_eq!(count(&updates, is_interrupt), 0);
}

#[tokio::test]
async fn a_command_of_the_bundle_is_terminated_with_its_whole_group() {
    let bench = Bench::new();
    let tree = format!("spawn {{ file=@/child {FOREVER} }} until=@/child file=@/ready {FOREVER}");
    let (ended, updates) = play(bench.spec(Manner::Group, &tree), short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    assert_eq!(ended.exit, Exit::Signal(15));
    assert!(!lives(bench.pid("child").await));
    assert_eq!(
        count(&updates, |update| matches!(update, Update::Interrupted { signal: ToolSignal::Terminate, .. })),
        1
    );
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended() {
    let bench = Bench::new();
    let mut spec = bench.spec(Manner::Group, &format!("on=TERM {{ }} {FOREVER}"));
    spec.timeout = Some(Duration::from_millis(200));
    let (ended, _) = run(spec).await;
    assert_eq!((ended.exit, ended.why, ended.killed), (Exit::Signal(9), Some(Why::TimedOut), true));
}

#[tokio::test]
async fn a_step_ends_with_its_process_and_the_holder_of_its_output_is_named_and_ended() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::OpenTofu, &format!("spawn {{ file=@/child {FOREVER} }} until=@/child print=done"));
    let (ended, updates) = run(spec).await;
    let child = bench.pid("child").await;
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(ended.took < Duration::from_secs(30));
    assert!(!lives(child));
    let named = |update: &Update| matches!(update, Update::LeftBehind { pid, name, .. } if *pid == child && name == "fake-tool");
    assert_eq!(count(&updates, named), 1);
    let left: Vec<_> = ended.left_behind.iter().map(|left| (left.pid, left.fate)).collect();
    assert_eq!(left, [(child, Fate::Ended)]);
}

#[tokio::test]
async fn a_descendant_in_its_own_session_that_closed_everything_is_found_by_its_tag() {
    let bench = Bench::new();
    let daemon = format!("spawn {{ spawn {{ setsid quiet file=@/daemon {FOREVER} }} }} until=@/daemon");
    let (ended, _) = run(bench.spec(Manner::Helm, &daemon)).await;
    let daemon = bench.pid("daemon").await;
    assert!(!lives(daemon));
    assert!(ended.left_behind.iter().any(|left| left.pid == daemon && left.fate == Fate::Ended));
}

#[tokio::test]
async fn what_ignores_the_request_to_end_is_killed() {
    let bench = Bench::new();
    let stubborn = format!("spawn {{ setsid on=TERM {{ file=@/asked }} file=@/child {FOREVER} }} until=@/child");
    let (ended, _) = run(bench.spec(Manner::OpenTofu, &stubborn)).await;
    bench.pid("asked").await;
    assert!(!lives(bench.pid("child").await));
    assert_eq!(ended.left_behind.iter().map(|left| left.fate).collect::<Vec<_>>(), [Fate::Ended]);
}

#[tokio::test]
async fn an_older_process_and_a_reader_of_the_output_are_left_alone() {
    let bench = Bench::new();
    std::fs::write(bench.path("stdout"), "").expect("written");
    let older = System.now();
    let mut bystander = itself(&["file=@/bystander", FOREVER], &bench);
    bench.pid("bystander").await;
    // Start times are told apart in hundredths of a second.
    wait_for(|| System.now().since(older) > Duration::from_millis(50)).await;
    let spec = bench.spec(Manner::OpenTofu, "print=done");
    let (ended, _) = run(spec).await;
    assert_eq!(ended.left_behind, []);
    assert!(lives(bystander.id()));
    bystander.kill().expect("ours to end");
    bystander.wait().expect("it ended");
}

#[tokio::test]
async fn a_tool_that_waits_for_a_pipe_which_an_orphan_holds_is_unblocked() {
    for (signs, stop) in [("print=OPENED print=CLOSED", false), ("print=CONCLUDED", false), ("print=OPENED", true)] {
        let bench = Bench::new();
        let stuck = format!(
            "on=INT {{ print=INTERRUPTED }} plugin {{ spawn {{ setsid file=@/holder {FOREVER} }} until=@/holder file=@/ready }} print=freed exit=5"
        );
        let (ended, updates) = play(
            bench.spec(Manner::OpenTofu, &format!("{signs} {stuck}")),
            { Limits { budget: PATIENCE, ..short() } },
            async |hand| {
                bench.pid("ready").await;
                if stop {
                    hand.stop();
                }
            },
        )
        .await;
        let holder = bench.pid("holder").await;
        assert_eq!(ended.exit, Exit::Code(5), "{signs}: the tool itself was not ended");
        assert!(!ended.killed && ended.interrupts_sent == u32::from(stop));
        assert_eq!(lines(&updates, Stream::Stdout).last().map(String::as_str), Some("freed"));
        assert!(ended.left_behind.iter().any(|left| left.pid == holder), "{signs}: the holder was named");
        assert!(!lives(holder));
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_renamed_delays_no_signal() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("records")).expect("a folder");
    let mut spec = bench.spec(Manner::OpenTofu, "on=INT { exit=4 } file=@/ready until=@/never");
    spec.record = bench.path("records/record");
    let (ended, _) = play(spec, short(), async |hand| {
        bench.pid("ready").await;
        std::fs::remove_dir_all(bench.path("records")).expect("removed");
        hand.stop();
    })
    .await;
    assert_eq!((ended.exit, ended.interrupts_sent), (Exit::Code(4), 1));
}

#[tokio::test]
async fn the_intent_is_recorded_before_the_signal_is_seen() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::OpenTofu, "on=INT { until=@/record.interrupted exit=0 } file=@/ready until=@/never");
    let (ended, _) = play(spec, Limits { budget: PATIENCE, ..short() }, async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    assert_eq!(ended.exit, Exit::Code(0));
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
async fn an_orphan_without_tag_group_and_output_is_adopted_and_ended() {
    let bench = Bench::new();
    let hidden = format!("spawn-clean {{ spawn {{ setsid quiet file=@/hidden {FOREVER} }} }} until=@/hidden");
    let said = output(&format!("adopt drive=@ {{ {hidden} }}"), &bench);
    let hidden = bench.pid("hidden").await;
    assert!(said.contains(&format!("LeftBehind {{ pid: {hidden}, ")), "{said}");
    assert!(!lives(hidden));
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

#[tokio::test]
async fn a_supervisor_has_nothing_by_which_the_front_could_be_ended_with_it() {
    let bench = Bench::new();
    // A descriptor that the front inherited without the mark that closes it.
    let inherited = std::fs::File::open("/dev/zero").expect("it is there");
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).expect("unmarked");
    let folder = bench.folder.path().display().to_string();
    let args = format!("inherit descriptors file={folder}/up until={folder}/go");
    let launch = Launch {
        program: PathBuf::from(TOOL),
        args: args.split(' ').map(OsString::from).collect(),
        env: dcctl::process::scrub([("RUNNER_TRACKING_ID".into(), "x".into()), ("KEPT".into(), "y".into())]),
        run_dir: bench.folder.path().to_owned(),
        log: bench.path("supervisor.log"),
    };
    let detached = spawn(&launch).expect("started");
    let pid = bench.pid("up").await;
    assert_eq!(pid, detached.pid);
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(&detached.socket), &mut said).expect("a line");
    assert_eq!(said, format!("{pid}\n"));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<u32> = stat
        .rsplit_once(") ")
        .expect("a name")
        .1
        .split(' ')
        .skip(1)
        .take(3)
        .map(|field| field.parse().expect("a number"))
        .collect();
    let (parent, session) = (fields[0], fields[2]);
    let mine = rustix::process::getsid(None).expect("a session").as_raw_nonzero().get();
    assert_ne!(parent, std::process::id());
    assert_ne!(session, mine.unsigned_abs());
    assert_ne!(session, pid, "it cannot get a controlling terminal");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("ours");
    assert_eq!(environment, b"KEPT=y\0");
    assert_eq!(
        std::fs::read_link(format!("/proc/{pid}/cwd")).expect("ours"),
        bench.folder.path().canonicalize().expect("a folder")
    );
    let descriptors: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("ours")
        .flatten()
        .map(|entry| std::fs::read_link(entry.path()).expect("open").display().to_string())
        .collect();
    let foreign = |to: &&String| !to.starts_with("socket:") && *to != "/dev/null" && !to.ends_with("/supervisor.log");
    assert_eq!(descriptors.iter().filter(foreign).collect::<Vec<_>>(), [&String::new(); 0], "{descriptors:?}");
    assert_eq!(descriptors.iter().filter(|to| to.starts_with("socket:")).count(), 1);
    std::fs::write(bench.path("go"), "").expect("written");
    tokio::time::timeout(PATIENCE, detached.ended()).await.expect("in time").expect("watched");
    assert!(detached.life.is_over());
}

#[test]
fn a_supervisor_that_is_not_there_is_said() {
    let bench = Bench::new();
    let launch = Launch {
        program: bench.path("nothing"),
        args: Vec::new(),
        env: Vec::new(),
        run_dir: bench.folder.path().to_owned(),
        log: bench.path("log"),
    };
    let failure = spawn(&launch).expect_err("it is not there");
    assert_eq!(failure.code, Code::CommandFailed);
    assert!(failure.causes.iter().any(|cause| cause.contains("No such file")), "{failure:?}");
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a number")).expect("a number");
    rustix::process::kill_process(pid, signal).expect("it lives");
}

#[expect(clippy::disallowed_methods, reason = "a test starts a program of its own")]
fn itself(args: &[&str], bench: &Bench) -> std::process::Child {
    let folder = bench.folder.path().display().to_string();
    let args = args.iter().map(|argument| argument.replace('@', &folder));
    let reader = std::fs::File::open(bench.path("stdout")).expect("it is there");
    std::process::Command::new(Path::new(TOOL)).args(args).stdin(reader).spawn().expect("started")
}

/// Runs `fake-tool` in a process of its own and returns what it printed.
#[expect(clippy::disallowed_methods, reason = "a test starts a program of its own")]
fn output(args: &str, bench: &Bench) -> String {
    let folder = bench.folder.path().display().to_string();
    let args = args.split_whitespace().map(|argument| argument.replace('@', &folder));
    let output = std::process::Command::new(Path::new(TOOL)).args(args).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
