//! Exact solution of one class where the service of a station depends on how many threads are there (Buzen's
//! convolution, which is what load-dependent mean value analysis computes, but without its subtractions: those lose all
//! digits where a station is nearly always busy).
//!
//! Normalising constants grow and shrink beyond any float, so numbers here have exponents of their own.

use super::network::{Class, Measures};

/// m · 2^e, m in [1, 2), or 0.
#[derive(Clone, Copy, Debug)]
struct Wide {
    m: f64,
    e: i64,
}

impl Wide {
    const ZERO: Self = Self { m: 0.0, e: i64::MIN / 4 };
    const ONE: Self = Self { m: 1.0, e: 0 };

    fn normal(self) -> Self {
        if self.m == 0.0 || !self.m.is_finite() {
            return Self::ZERO;
        }
        let bits = self.m.to_bits();
        let exponent = ((bits >> 52) & 0x7ff) as i64;
        if exponent == 0 {
            // Subnormal: once more with a factor that makes it normal.
            return Self { m: self.m * 2_f64.powi(128), e: self.e - 128 }.normal();
        }
        Self { m: f64::from_bits(bits & !(0x7ff << 52) | 1023 << 52), e: self.e + exponent - 1023 }
    }

    fn times(self, by: f64) -> Self {
        Self { m: self.m * by, e: self.e }.normal()
    }

    /// This as a multiple of another, which is not 0.
    fn over(self, other: Self) -> f64 {
        self.m / other.m * power(self.e - other.e)
    }
}

/// 2^e; 0 where that is too small to matter.
fn power(e: i64) -> f64 {
    match e {
        -1022..=1023 => f64::from_bits(((e + 1023) as u64) << 52),
        ..-1022 => 0.0,
        _ => f64::INFINITY,
    }
}

/// Σ a(k) · b(n − k) for k up to n.
fn product_at(a: &[Wide], b: &[Wide], n: usize) -> Wide {
    let pairs = || a[..=n].iter().zip(b[..=n].iter().rev());
    let largest = pairs().map(|(a, b)| a.e + b.e).max().unwrap_or(0);
    let sum = pairs().map(|(a, b)| a.m * b.m * power(a.e + b.e - largest)).sum();
    Wide { m: sum, e: largest }.normal()
}

fn convolve(a: &[Wide], b: &[Wide]) -> Vec<Wide> {
    (0..a.len()).map(|n| product_at(a, b, n)).collect()
}

/// Solves for one number of threads. `service(i, n)` is the mean service at station i while n threads are there, n ≥ 1.
#[must_use]
pub fn solve(class: &Class, service: impl Fn(usize, u32) -> f64) -> Measures {
    let n = class.population as usize;
    if n == 0 {
        return Measures::none(class);
    }
    let stations = class.visits.len();
    // What station i contributes with k threads at it: Π v·s(j), j = 1..k.
    let factors: Vec<Vec<Wide>> = (0..stations)
        .map(|i| {
            let mut factors = Vec::with_capacity(n + 1);
            factors.push(Wide::ONE);
            for k in 1..=class.population {
                let last = factors.last().copied().unwrap_or(Wide::ONE);
                factors.push(last.times(class.visits[i] * service(i, k)));
            }
            factors
        })
        .collect();
    let mut outside = vec![Wide::ONE];
    for k in 1..=n {
        let last = outside[k - 1];
        outside.push(last.times(class.think / k as f64));
    }
    // The stations before each, and those behind.
    let mut before = vec![outside];
    for factors in &factors {
        before.push(convolve(&before[before.len() - 1], factors));
    }
    let whole = before[stations].clone();
    let mut found = Measures::none(class);
    found.throughput = whole[n - 1].over(whole[n]);
    let mut behind = vec![Wide::ZERO; n + 1];
    behind[0] = Wide::ONE;
    for i in (0..stations).rev() {
        let others = convolve(&before[i], &behind);
        let (mut queue, mut busy) = (0.0, 0.0);
        for k in 1..=n {
            let part = Wide { m: factors[i][k].m * others[n - k].m, e: factors[i][k].e + others[n - k].e }.normal();
            let probability = if part.m == 0.0 { 0.0 } else { part.over(whole[n]) };
            queue += k as f64 * probability;
            busy += probability;
        }
        let visits = found.throughput * class.visits[i];
        found.queue[i] = queue;
        if visits > 0.0 {
            found.residence[i] = queue / visits;
            found.service[i] = busy / visits;
        } else {
            found.residence[i] = service(i, 1);
            found.service[i] = service(i, 1);
        }
        behind = convolve(&behind, &factors[i]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_numbers() {
        for value in [1.0, 0.3, 1e300, 1e-300, 3.0] {
            let wide = Wide::ONE.times(value);
            assert!((1.0..2.0).contains(&wide.m), "{value}");
            assert_eq!(wide.over(Wide::ONE), value);
        }
        assert_eq!(Wide::ONE.times(0.0).m, 0.0);
        assert!((1.0..2.0).contains(&Wide::ONE.times(1e-310).m));
        let huge = (0..1_000).fold(Wide::ONE, |wide, _| wide.times(1e6));
        assert!((huge.over(huge.times(3.0)) - 1.0 / 3.0).abs() < 1e-15);
    }
}
