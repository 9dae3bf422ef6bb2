//! The digest by which a person names the very archive that a run is to work from.

use std::fmt;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

use crate::failure::{Code, Failure};

/// What a digest begins with.
const BEGINS: &str = "sha256:";

/// The SHA-256 of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest([u8; SHA256_OUTPUT_LEN]);

impl Digest {
    /// Reads `sha256:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`Code::OptionInvalid`] for anything else.
    pub fn parse(text: &str) -> Result<Digest, Failure> {
        let digits =
            text.strip_prefix(BEGINS).map(str::as_bytes).filter(|digits| digits.len() == 2 * SHA256_OUTPUT_LEN);
        let read = digits.and_then(|digits| {
            let mut bytes = [0; SHA256_OUTPUT_LEN];
            for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                let value = |digit: u8| char::from(digit).to_digit(16);
                *byte = u8::try_from(value(pair[0])? * 16 + value(pair[1])?).ok()?;
            }
            Some(Digest(bytes))
        });
        read.ok_or_else(|| {
            let sentence = "--bundle-digest is `sha256:` and 64 hexadecimal digits, and nothing else";
            Failure::new(Code::OptionInvalid, sentence).hint("`sha256sum` of the archive prints the digits")
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BEGINS)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Makes a digest of what it is given, piece by piece.
pub(crate) struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Hasher {
        Hasher(Context::new(&SHA256))
    }
}

impl Hasher {
    /// The next piece.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all of it.
    pub(crate) fn digest(self) -> Digest {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_it_is_read() {
        let mut hasher = Hasher::default();
        hasher.take(b"ab");
        hasher.take(b"c");
        let digest = hasher.digest();
        let shown = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), shown);
        assert_eq!(Digest::parse(shown), Ok(digest.clone()));
        assert_eq!(Digest::parse(&shown.to_uppercase().replace("SHA256", "sha256")), Ok(digest));
    }

    #[test]
    fn anything_else_is_no_digest() {
        let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let wrong = [
            String::new(),
            "sha256:".to_owned(),
            digits.to_owned(),
            format!("sha512:{digits}"),
            format!("SHA256:{digits}"),
            format!("sha256:{}", &digits[1..]),
            format!("sha256:{digits}0"),
            format!("sha256:{}g", &digits[1..]),
            format!(" sha256:{digits}"),
            format!("sha256:{}+1", &digits[2..]),
            format!("sha256:{}\u{e9}", &digits[2..]),
        ];
        for text in wrong {
            assert_eq!(Digest::parse(&text).map_err(|failure| failure.code), Err(Code::OptionInvalid), "{text}");
        }
    }
}
