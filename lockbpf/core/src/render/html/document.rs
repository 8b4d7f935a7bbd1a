//! The pieces of a page put together.

use crate::render::markup::escaped;
use sha2::{Digest, Sha256};

const TEMPLATE: &str = include_str!("page/page.html");

const STYLE: &[&str] =
    &[include_str!("page/style/base.css"), include_str!("page/style/parts.css"), include_str!("page/style/print.css")];

/// What draws a page, in one scope and in this order.
pub(super) type Scripts = &'static [&'static str];

/// The scripts of a report's page.
pub(super) const REPORT: Scripts = &[
    include_str!("page/script/units.js"),
    include_str!("page/script/dom.js"),
    include_str!("page/script/histogram.js"),
    include_str!("page/script/causes.js"),
    include_str!("page/script/locks.js"),
    include_str!("page/script/matrix.js"),
    include_str!("page/script/lock.js"),
    include_str!("page/script/chains.js"),
    include_str!("page/script/lanes.js"),
    include_str!("page/script/lanes_control.js"),
    include_str!("page/script/flame.js"),
    include_str!("page/script/what_if.js"),
    include_str!("page/script/advice.js"),
    include_str!("page/script/dangers.js"),
    include_str!("page/script/quality.js"),
    include_str!("page/script/main.js"),
    include_str!("page/script/paper.js"),
];

/// The scripts of a comparison's page.
pub(super) const COMPARISON: Scripts = &[
    include_str!("page/script/units.js"),
    include_str!("page/script/dom.js"),
    include_str!("page/script/compare.js"),
    include_str!("page/script/paper.js"),
];

/// A page that shows this JSON, with a text for browsers that run no scripts.
pub(super) fn page(scripts: Scripts, title: &str, json: &str, text: &str) -> String {
    let style = STYLE.concat();
    let script = format!("(() => {{\n'use strict';\n{}}})();\n", scripts.concat());
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        base64(&Sha256::digest(&script)),
        base64(&Sha256::digest(&style))
    );
    let mut pieces = TEMPLATE.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        match name {
            "title" => page += &escaped(title),
            "policy" => page += &policy,
            "style" => page += &style,
            "script" => page += &script,
            "data" => page += &inert(json),
            "text" => page += &escaped(text),
            _ => {}
        }
        page += rest;
    }
    page
}

/// JSON that cannot end the element that it is in, nor begin a comment: in JSON `<` stands in strings only.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        let of = |text: &str| base64(text.as_bytes());
        assert_eq!(
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(of),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]
        );
    }

    #[test]
    fn names_cannot_end_what_they_are_in() {
        let name = r#"</script><script>alert(1)</script><!-- {{script}} "'&"#;
        let json = serde_json::to_string(name).unwrap();
        let page = page(REPORT, name, &json, name);
        let data = page.split_once(r#"id="data">"#).unwrap().1.split_once("</script>").unwrap().0;
        assert_eq!(serde_json::from_str::<String>(data).unwrap(), name);
        assert_eq!(page.matches("alert(1)").count(), 3);
        assert_eq!(page.matches("<script>alert").count(), 0);
        assert_eq!(page.matches("</noscript>").count(), 1);
    }

    #[test]
    fn a_page_is_whole_and_asks_for_nothing() {
        for scripts in [REPORT, COMPARISON] {
            let page = page(scripts, "t", "{}", "").replace("http://www.w3.org/2000/svg", "");
            assert!(!page.contains("{{"));
            for outside in ["http:", "https:", "@import", "url(", "src=", "innerHTML", "document.write", "eval("] {
                assert!(!page.contains(outside), "{outside}");
            }
        }
    }
}
