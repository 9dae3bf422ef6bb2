//! Copies what the front reads to the command of `dcctl exec --stdin`, through a pipe that was made for it.
//!
//! The front alone has the pipe's writing end, so the command sees the end of its input when ours has ended and when
//! the front is gone, however that went. Nothing is read before the command runs: what a refused run leaves unread is
//! still there for whoever comes next.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::thread;

use rustix::event::{PollFd, PollFlags};

/// How much is copied at a time, in bytes.
const BLOCK: usize = 64 * 1024;

/// A copy that has not begun.
pub(crate) struct Feed {
    /// What to read: standard input.
    pub(crate) input: Box<dyn Read + Send>,
    /// Where it goes.
    pub(crate) pipe: OwnedFd,
    /// Where it is said that it cannot be read.
    pub(crate) complaints: Box<dyn Write + Send>,
}

impl Feed {
    /// Begins, on a thread of its own: it may wait for a person who types, or for a command that does not read.
    pub(crate) fn start(mut self) {
        let body = move || {
            let mut pipe = File::from(self.pipe);
            if let Err(error) = copy(&mut self.input, &mut pipe) {
                let said = format!("dcctl: standard input cannot be read ({error}): the command sees its end here\n");
                let _ = self.complaints.write_all(said.as_bytes());
            }
        };
        // Without the thread the command sees the end of its input at once.
        drop(thread::Builder::new().name("feed".to_owned()).spawn(body));
    }
}

/// Copies until there is no more, or nobody reads any more.
///
/// # Errors
/// When the input cannot be read.
fn copy(input: &mut dyn Read, pipe: &mut dyn Write) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        let count = match input.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Somebody who has the same input does not want to wait for it; we do.
                rustix::event::poll(&mut [PollFd::new(&rustix::stdio::stdin(), PollFlags::IN)], None)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        // A command that reads no further has what it wants.
        if pipe.write_all(&block[..count]).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_copied_and_a_reader_that_leaves_is_no_error() {
        let text = vec![7; 3 * BLOCK + 1];
        let mut copied = Vec::new();
        copy(&mut text.as_slice(), &mut copied).expect("readable");
        assert_eq!(copied, text);
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        copy(&mut text.as_slice(), &mut writer).expect("nobody's fault");
    }

    #[test]
    fn an_input_that_cannot_be_read_is_said() {
        let mut folder = File::open("/").expect("there is a root");
        assert!(copy(&mut folder, &mut io::sink()).is_err());
    }
}
