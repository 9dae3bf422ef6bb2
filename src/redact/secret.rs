//! A value that cannot be printed by accident.

use std::fmt;

use crate::redact::REPLACEMENT;

/// A value that is never printed. `Debug` and `Display` say `[redacted]`; serialisers see it only through [`exposed`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself. Whoever calls this answers for where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Secret {
        Secret(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REPLACEMENT)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REPLACEMENT)
    }
}

/// For `#[serde(with = "crate::redact::exposed")]`: this field carries the secret itself, because it goes from one of
/// our processes to the other and nowhere else.
pub mod exposed {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::redact::Secret;

    /// Writes the value.
    pub fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose())
    }

    /// Reads the value.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer).map(Secret::from)
    }
}

/// [`exposed`], for a map of names to secrets.
pub mod exposed_map {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::redact::Secret;

    /// Writes the values.
    pub fn serialize<S: Serializer>(secrets: &BTreeMap<String, Secret>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(secrets.iter().map(|(name, secret)| (name, secret.expose())))
    }

    /// Reads the values.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Secret>, D::Error> {
        let values = BTreeMap::<String, String>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|(name, value)| (name, Secret::from(value))).collect())
    }
}
