//! Attention over pages, by each variant of its kernels.

use lapidary::kv::{Attend, KvCache, KvOptions};
use lapidary::{DType, Gpu, Result, Tensor};

use crate::races::Rota;
use crate::races::variants::of;

/// A prompt, then a token, of grouped heads.
fn steps(gpu: &Gpu, dtype: DType, page_tokens: usize, how: Attend) -> Result<Vec<Tensor>> {
    let cache = KvCache::new(
        gpu,
        KvOptions {
            layers: 2,
            kv_heads: 2,
            head_size: 12,
            dtype,
            page_tokens,
        },
    )?;
    let mut sequence = cache.sequence("interpreted");
    let mut made = Vec::new();
    for tokens in [35, 1, 2] {
        let step = cache.step(vec![(&mut sequence, tokens)])?;
        let q = of(gpu, DType::F32, &[tokens, 6, 12])?;
        let k = of(gpu, DType::F32, &[tokens, 2, 12])?;
        for layer in 0..2 {
            made.push(step.attend(layer, &q, &k, &k, how)?);
        }
        step.finish();
    }
    Ok(made)
}

#[test]
fn attention_over_pages() {
    let mut rota = Rota::new();
    for dtype in [DType::F32, DType::F16, DType::I8] {
        for (page_tokens, softcap) in [(16, None), (32, Some(3.0)), (16, Some(2.0))] {
            let how = Attend {
                scale: None,
                window: softcap.map(|_| 20),
                softcap,
            };
            rota.check(&format!("pages of {page_tokens}"), dtype, &|gpu| {
                steps(gpu, dtype, page_tokens, how)
            });
        }
    }
    rota.end();
}
