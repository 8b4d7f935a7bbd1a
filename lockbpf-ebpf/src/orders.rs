//! Which lock is taken while which other is held. Only nested acquisitions come here, while the outer lock is held: one
//! lookup each.

use crate::atomic::add;
use crate::held::Held;
use crate::maps::{ORDERS, count};
use crate::thread::{Thread, tid};
use aya_ebpf::bindings::BPF_NOEXIST;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::order::{OrderKey, OrderSums};
use lockbpf_common::via::is_try;

/// Takes note that `inner` is taken while the thread holds others. A trylock cannot wait, so its order does not matter.
#[inline(always)]
pub fn nested(t: &Thread, inner: &Held) {
    if is_try(inner.via) {
        return;
    }
    let outer = &t.held[t.depth.wrapping_sub(1) as usize & (MAX_HELD - 1)];
    note(outer.lock, outer.site, inner.lock, inner.site, t.process);
}

/// A function of its own, so that its instructions are not repeated in every program.
#[inline(never)]
fn note(outer: u64, outer_site: u64, inner: u64, inner_site: u64, process: u32) -> u32 {
    let key = OrderKey { outer, inner, process, reserved: 0 };
    let tid = tid();
    if let Some(sums) = ORDERS.get_ptr_mut(key) {
        // SAFETY: entries are never removed while the programs run.
        let sums = unsafe { &mut *sums };
        add(&mut sums.count, 1);
        if sums.tid != tid {
            sums.others = 1;
        }
        return 0;
    }
    let sums = OrderSums { outer_site, inner_site, count: 1, tid, others: 0 };
    // Another thread may be faster; this one is then not counted, which makes no difference the next time.
    if ORDERS.insert(key, sums, u64::from(BPF_NOEXIST)).is_err() && ORDERS.get_ptr_mut(key).is_none() {
        count(Counter::OrdersFull);
    }
    0
}
