//! Advice from a million access records: reading them, and all that is made of them. `cargo bench --bench advise` prints a table.

use lockbpf_core::advice::{Options, advise, read, render};
use std::fmt::Write as _;
use std::time::Instant;

/// Records of sections that take turns on some locks, each with locations of its thread's own, of the lock's, and of any of
/// so many elements. With `paths`, the order of accesses, too.
fn records(sections: u64, threads: u64, locks: u64, elements: u64, paths: bool) -> String {
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = String::new();
    let mut line = |rest: std::fmt::Arguments<'_>| text.write_fmt(rest).expect("a String takes everything");
    for seq in 0..sections {
        let (thread, lock, site) = (random.u64(0..threads), random.u64(0..locks), random.u64(0..4));
        let element = |n: u64| format!("\"{:#x}\"", 0x7f00_0000_0000 + 64 * n);
        let elements: Vec<String> = (0..8).map(|_| element(random.u64(0..elements))).collect();
        let (own, head) = (format!("\"own+{:#x}\"", 64 * thread), format!("\"lock{lock}.head\""));
        let reads = format!("{},{own},{head}", elements.join(","));
        let writes = if site == 0 { format!("{},{head}", elements[0]) } else { own.clone() };
        line(format_args!(
            r#"{{"run":0,"seq":{seq},"tid":"1.{thread}","lock":"lock{lock}","site":"site{lock}.{site}","reads":[{reads}],"writes":[{writes}]"#
        ));
        if paths {
            line(format_args!(
                r#","accesses":"rrrrrrrrrrrw","at":[{own},{reads}{}]"#,
                if site == 0 { format!(",{head}") } else { format!(",{own}") }.replace(",,", ",")
            ));
        }
        line(format_args!("}}\n"));
    }
    text
}

fn main() {
    println!("{:<46} {:>8} {:>10} {:>10} {:>10}", "a million records", "MB", "reading s", "advice s", "in all s");
    for (name, threads, locks, elements, paths) in [
        ("8 threads, 1 lock, few locations", 8, 1, 10, false),
        ("8 threads, 4 locks, any of 100,000 elements", 8, 4, 100_000, false),
        ("64 threads, 4 locks, any of 100,000 elements", 64, 4, 100_000, false),
        ("1,000 threads, 1 lock, any of 1,000 elements", 1_000, 1, 1_000, false),
        ("8 threads, 4 locks, in order of accesses", 8, 4, 100_000, true),
    ] {
        let text = records(1_000_000, threads, locks, elements, paths);
        let begin = Instant::now();
        let records = read(text.as_bytes()).expect("they are well-formed");
        let reading = begin.elapsed().as_secs_f64();
        std::hint::black_box(render(&advise(&records, &Options::default()), 120));
        let all = begin.elapsed().as_secs_f64();
        let megabytes = text.len() / 1_000_000;
        println!("{name:<46} {megabytes:>8} {reading:>10.2} {:>10.2} {all:>10.2}", all - reading);
    }
}
