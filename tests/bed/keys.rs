//! Keys of the control plane: the pair with which the API server signs the tokens of service accounts, and the authority
//! whose client certificates it believes.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

/// What comes before the 65 bytes of a P-256 point to make them a public key as X.509 writes it (RFC 5480).
const P256_POINT: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Writes a new pair as `sa.key` and `sa.pub`.
pub(crate) fn write_pair(folder: &Path) -> io::Result<()> {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let broken = |_| io::Error::other("no key pair could be made");
    let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(broken)?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random)
        .expect("a key that was just made is well-formed");
    let public = [&P256_POINT, pair.public_key().as_ref()].concat();
    fs::write(folder.join("sa.key"), pem("PRIVATE KEY", private.as_ref()))?;
    fs::write(folder.join("sa.pub"), pem("PUBLIC KEY", &public))
}

/// Writes a new authority as `clients.crt` and `clients.key`: whoever has a certificate of it is who the certificate says.
pub(crate) fn write_client_authority(folder: &Path) -> io::Result<()> {
    let broken = |error| io::Error::other(format!("no authority could be made: {error}"));
    let key = rcgen::KeyPair::generate().map_err(broken)?;
    fs::write(folder.join("clients.crt"), client_authority().self_signed(&key).map_err(broken)?.pem())?;
    fs::write(folder.join("clients.key"), key.serialize_pem())
}

/// What that authority says of itself. With `clients.key` it can issue certificates.
pub(crate) fn client_authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "clients");
    params
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// 128 random bits as text, for tokens and names.
pub(crate) fn random_word() -> String {
    let high = getrandom::u64().expect("the system has randomness");
    let low = getrandom::u64().expect("the system has randomness");
    format!("{high:016x}{low:016x}")
}
