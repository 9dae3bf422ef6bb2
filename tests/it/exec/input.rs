//! What the command reads: nothing, or with `--stdin` what the front reads.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::Stdio;

use rustix::process::Signal;

use crate::bed::terminal::Seat;
use crate::exec::Rig;

#[test]
fn without_the_option_the_command_reads_nothing_and_nothing_is_taken() {
    let rig = Rig::new();
    let path = rig.bed.write("input", "for somebody else\n");
    let mut input = File::open(path).expect("it is there");
    let mut run = rig.exec(&[], &["cat"]);
    run.command().stdin(input.try_clone().expect("a descriptor"));
    assert_eq!(run.run().expect_code(0).stdout, "");
    assert_eq!(input.stream_position().expect("a file"), 0);
}

#[test]
fn the_command_reads_byte_for_byte_what_the_front_reads() {
    let rig = Rig::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(|number| (number % 251).to_le_bytes()).collect();
    std::fs::write(rig.bed.file("input"), &bytes).expect("the test's folder can be written");
    let mut run = rig.exec(&["--stdin"], &["cat"]);
    run.command().stdin(File::open(rig.bed.file("input")).expect("it is there")).stdout(rig.output("out"));
    run.run().expect_code(0);
    assert!(rig.read("out") == Some(bytes), "it is not what was read");
}

#[test]
fn a_command_has_no_terminal_even_when_a_person_types_its_input() {
    let rig = Rig::new();
    let script = "for fd in 0 1 2; do test -t $fd && echo $fd >> @/terminals; done; true 2> @/refused < /dev/tty && \
                  echo tty >> @/terminals; read -r typed; echo \"$typed\" > @/typed";
    let seat = Seat::take(rig.sh(&["--stdin"], script));
    seat.type_line("hello");
    seat.expect_code(0);
    assert_eq!(rig.read("typed").as_deref(), Some(&b"hello\n"[..]));
    assert_eq!(rig.read("terminals").map(|said| String::from_utf8_lossy(&said).into_owned()), None);
}

#[test]
fn the_end_of_our_input_is_the_end_of_the_command_s() {
    let rig = Rig::new();
    let script = "read -r first; echo \"$first\" > @/first; cat > @/rest; exit 0";
    let mut run = rig.sh(&["--stdin", "--output", "jsonl"], script);
    let (reader, mut writer) = std::io::pipe().expect("there are descriptors left");
    run.command().stdin(reader);
    let run = run.start();
    writer.write_all(b"one\n").expect("it is read");
    rig.wait_for("first");
    writer.write_all(b"two").expect("it is read");
    drop(writer);
    run.finish().expect_code(0);
    assert_eq!(rig.read("rest"), Some(b"two".to_vec()));
}

#[test]
fn a_command_that_reads_no_further_holds_up_nobody() {
    let rig = Rig::new();
    let mut run = rig.exec(&["--stdin"], &["head", "-c", "3"]);
    run.command().stdin(File::open("/dev/zero").expect("it is there"));
    assert_eq!(run.run().expect_code(0).stdout, "\0\0\0");

    // A command that does not read at all, and an input that never ends.
    let (_writer, reader) =
        std::io::pipe().map(|(reader, writer)| (writer, reader)).expect("there are descriptors left");
    let mut run = rig.exec(&["--stdin"], &["true"]);
    run.command().stdin(reader);
    run.run().expect_code(0);
}

#[test]
fn a_front_that_is_killed_closes_the_command_s_input() {
    let rig = Rig::new();
    let (folder, journal) = rig.run_dir("run");
    // `cat` is deaf to the SIGTERM that follows: only the end of its input ends it.
    let script = "trap '' TERM; : > @/up; cat > @/got; : > @/end";
    let mut run = rig.sh(&["--stdin", "--run-dir", &folder.display().to_string()], script);
    let (reader, mut writer) = std::io::pipe().expect("there are descriptors left");
    run.command().stdin(reader);
    let run = run.start();
    writer.write_all(b"some").expect("it is read");
    crate::bed::wait::fact("the command to read", || rig.read("got").filter(|got| got == b"some"));
    run.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!((&verdict["data"]["exit_code"], &verdict["data"]["lock"]), (&10.into(), &"released".into()));
    assert_eq!(rig.read("got"), Some(b"some".to_vec()));
    assert!(rig.read("end").is_some());
}

/// What is not read is still there for the next one.
#[test]
fn a_run_that_does_not_begin_leaves_its_input_unread() {
    let rig = Rig::new();
    let path = rig.bed.write("input", "for the next one\n");
    let mut input = File::open(path).expect("it is there");
    let first = rig.sh(&["--output", "jsonl"], ": > @/up; until [ -e @/go ]; do sleep 0.05; done").start();
    rig.wait_for("up");
    for (words, code) in [(["cat"], 20), (["no-such-program"], 4)] {
        let mut run = rig.exec(&["--stdin"], &words);
        run.command().stdin(input.try_clone().expect("a descriptor"));
        run.run().expect_code(code);
        assert_eq!(input.stream_position().expect("a file"), 0);
    }
    rig.mark("go");
    first.finish().expect_code(0);
    let mut run = rig.exec(&["--stdin"], &["cat"]);
    run.command().stdin(input.try_clone().expect("a descriptor"));
    assert_eq!(run.run().expect_code(0).stdout, "for the next one");
}

#[test]
fn an_input_that_cannot_be_read_is_said() {
    let rig = Rig::new();
    let mut run = rig.exec(&["--stdin"], &["cat"]);
    run.command().stdin(Stdio::from(File::open(rig.bed.scratch()).expect("a folder")));
    let finished = run.run().expect_code(0);
    assert!(finished.stderr.contains("standard input cannot be read"), "{}", finished.stderr);
}
