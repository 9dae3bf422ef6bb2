//! Names that say that what they name is secret.

/// Whether a key says that its value is secret: one of its words is `password`, `token` and the like, or two or three
/// in a row are `api key`, `client key data` and the like. Words end at punctuation and at a change to upper case.
pub fn is_secret_key(key: &str) -> bool {
    const ALONE: &[&str] = &[
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "secret",
        "secrets",
        "token",
        "tokens",
        "authorization",
        "credential",
        "credentials",
        "apikey",
        "privatekey",
        "accesskey",
    ];
    const TOGETHER: &[&[&str]] = &[
        &["private", "key"],
        &["api", "key"],
        &["access", "key"],
        &["root", "key"],
        &["client", "key", "data"],
        &["encryption", "key"],
        &["signing", "key"],
    ];
    let words = words(key);
    words.iter().any(|word| ALONE.contains(&word.as_str()))
        || TOGETHER.iter().any(|run| words.windows(run.len()).any(|seen| seen.iter().eq(run.iter())))
}

/// The words of a key, in lower case: `clientKeyData`, `client-key-data` and `CLIENT_KEY_DATA` are the same three.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for letter in key.chars() {
        if !letter.is_alphanumeric() || letter.is_uppercase() && after_lower {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("there is always a last word").extend(letter.to_lowercase());
        }
        after_lower = letter.is_lowercase() || letter.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_judged_by_whole_words() {
        for secret in ["password", "DB_PASSWD", "client-key-data", "apiKey", "X-Authorization", "my.private.key"] {
            assert!(is_secret_key(secret), "{secret}");
        }
        for open in ["compass", "tokenizer", "key", "api_keyboard", "secretary", "authority", "resource_key"] {
            assert!(!is_secret_key(open), "{open}");
        }
    }
}
