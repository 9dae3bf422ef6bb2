//! The journal itself, line by line, for machines: the bytes of the events file, unchanged, one write per line.

use std::io::{self, Write};

/// Copies lines of the journal to a writer.
#[derive(Debug)]
pub struct Jsonl<W: Write> {
    out: W,
}

impl<W: Write> Jsonl<W> {
    /// A report that goes to `out`, which should not buffer: a reader wants to see each line when it happens.
    pub fn new(out: W) -> Jsonl<W> {
        Jsonl { out }
    }

    /// Passes on one line, with its line feed or without, in one write, so that two writers never mix within a line.
    pub fn take(&mut self, line: &str) -> io::Result<()> {
        if line.ends_with('\n') {
            self.out.write_all(line.as_bytes())?;
        } else {
            self.out.write_all(format!("{line}\n").as_bytes())?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_is_one_write() {
        let mut report = Jsonl::new(Writes::default());
        report.take("{\"a\":1}\n").expect("a vector takes it");
        report.take("{\"a\":2}").expect("a vector takes it");
        assert_eq!(report.out.0, [b"{\"a\":1}\n".to_vec(), b"{\"a\":2}\n".to_vec()]);
    }
}
