//! When a certificate ends. Its `validity` is all that is read of it; whether it is any good is the API server's business.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version of a certificate; the first kind has none.
const VERSION: u8 = 0xa0;

/// When this certificate (DER) ends, if it says so.
pub(in crate::cluster) fn ends(der: &[u8]) -> Option<Timestamp> {
    let whole = Element::first(der)?.within(SEQUENCE)?;
    let mut rest = Element::first(whole)?.within(SEQUENCE)?;
    if Element::first(rest)?.tag == VERSION {
        rest = Element::first(rest)?.rest;
    }
    // The serial number, how it is signed, and who signed it.
    for _ in 0..3 {
        rest = Element::first(rest)?.rest;
    }
    let begins = Element::first(Element::first(rest)?.within(SEQUENCE)?)?;
    let end = Element::first(begins.rest)?;
    time(end.tag, std::str::from_utf8(end.content).ok()?)
}

/// One value of DER, and what comes after it.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Element<'a> {
    fn first(bytes: &'a [u8]) -> Option<Element<'a>> {
        let (&tag, bytes) = bytes.split_first()?;
        let (&length, bytes) = bytes.split_first()?;
        let (length, bytes) = match length {
            short @ 0..0x80 => (usize::from(short), bytes),
            // So many bytes hold the length.
            long => {
                let (digits, bytes) = bytes.split_at_checked(usize::from(long & 0x7f))?;
                let length = digits.iter().try_fold(0_usize, |sum, digit| {
                    sum.checked_mul(256).and_then(|sum| sum.checked_add(usize::from(*digit)))
                });
                (length?, bytes)
            }
        };
        let (content, rest) = bytes.split_at_checked(length)?;
        Some(Element { tag, content, rest })
    }

    fn within(&self, tag: u8) -> Option<&'a [u8]> {
        (self.tag == tag).then_some(self.content)
    }
}

/// `YYMMDDHHMMSSZ`, or the same with four digits of the year. Two digits are those of 1950 to 2049.
fn time(tag: u8, text: &str) -> Option<Timestamp> {
    let text = match tag {
        GENERALIZED_TIME => text.to_owned(),
        UTC_TIME => {
            let century = if text.get(..2)?.parse::<u8>().ok()? < 50 { "20" } else { "19" };
            format!("{century}{text}")
        }
        _ => return None,
    };
    let local = DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn expired() -> Vec<u8> {
        let pem = include_bytes!("../../tests/it/cluster/expired.pem");
        CertificateDer::from_pem_slice(pem).expect("a certificate").to_vec()
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        assert_eq!(ends(&expired()).expect("it ends").to_string(), "2020-01-02T00:00:00Z");
    }

    #[test]
    fn both_forms_of_a_time_are_read() {
        let said = |tag, text| time(tag, text).map(|time| time.to_string());
        assert_eq!(said(UTC_TIME, "491231235959Z").as_deref(), Some("2049-12-31T23:59:59Z"));
        assert_eq!(said(UTC_TIME, "500101000000Z").as_deref(), Some("1950-01-01T00:00:00Z"));
        assert_eq!(said(GENERALIZED_TIME, "20500101000000Z").as_deref(), Some("2050-01-01T00:00:00Z"));
        assert_eq!(said(UTC_TIME, "tomorrow"), None);
    }

    #[test]
    fn what_is_no_certificate_has_no_end_wherever_it_breaks_off() {
        let whole = expired();
        for length in 0..whole.len() {
            assert_eq!(ends(&whole[..length]), None, "{length}");
        }
        assert_eq!(ends(&[0x30, 0xff, 1, 2, 3]), None);
    }
}
