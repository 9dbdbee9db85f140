// ferris CALLS: Rust names, and a panic that crosses a probed function.
use std::panic;

mod till {
    /// The trait object keeps the call.
    pub trait Step {
        fn step(&self, x: u64) -> u64;
    }

    pub struct Plus(pub u64);

    impl Step for Plus {
        #[inline(never)]
        fn step(&self, x: u64) -> u64 {
            std::hint::black_box(x) + self.0
        }
    }

    #[inline(never)]
    pub fn refuse(x: u64) -> u64 {
        if std::hint::black_box(x) % 10 == 0 {
            panic!("tenth");
        }
        x
    }
}

fn main() {
    use till::Step;
    panic::set_hook(Box::new(|_| {}));
    let calls: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000);
    let plus: Box<dyn Step> = std::hint::black_box(Box::new(till::Plus(3)));
    let mut caught = 0;
    for i in 0..calls {
        assert_eq!(plus.step(i), i + 3);
        caught += u64::from(panic::catch_unwind(|| till::refuse(i)).is_err());
    }
    assert_eq!(caught, calls.div_ceil(10));
    println!("expect <ferris::till::Plus as ferris::till::Step>::step {calls}");
    println!("expect ferris::till::refuse {calls}");
}
