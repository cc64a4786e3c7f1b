use embed::*;
use lapidary::*;
use std::path::Path;

fn weights(gpu: &Gpu, folder: &Path) -> Weights {
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let h: serde_json::Value = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
    let mut out = Vec::new();
    for (name, e) in h.as_object().unwrap() {
        if name == "__metadata__" || e["dtype"] != "F32" {
            continue;
        }
        let shape: Vec<usize> = e["shape"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_u64().unwrap() as usize)
            .collect();
        let off = e["data_offsets"][0].as_u64().unwrap() + 8 + n as u64;
        let s = Source::file(&path, off).unwrap();
        out.push((name.clone(), gpu.backed(s, &shape, DType::F32).unwrap()));
    }
    out.into_iter().collect()
}

#[test]
fn golden() {
    let folder = Path::new("/work/t/embed/model");
    let gpu = Gpu::open(Options::default()).unwrap();
    let rd = |n: &str| std::fs::read(folder.join(n)).unwrap();
    let files = Files {
        config: &rd("config.json"),
        sentences: Some(&rd("sentence_bert_config.json")),
        tokenizer: &rd("tokenizer.json"),
    };
    let t = std::time::Instant::now();
    let model = Model::new(&gpu, files, weights(&gpu, folder)).unwrap();
    println!("opened {:?}", t.elapsed());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let texts: serde_json::Value =
        serde_json::from_slice(&std::fs::read(root.join("texts.json")).unwrap()).unwrap();
    let want = std::fs::read(root.join("embeddings.f32")).unwrap();
    let want: Vec<f32> = want
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect();
    let strs: Vec<String> = texts
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["text"].as_str().unwrap().to_owned())
        .collect();
    for (i, t) in texts.as_array().unwrap().iter().enumerate() {
        let ids: Vec<u32> = t["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_u64().unwrap() as u32)
            .collect();
        assert_eq!(
            model.words.tokens(&strs[i]).unwrap().ids,
            ids,
            "{}",
            strs[i]
        );
    }
    for _ in 0..3 {
        let t = std::time::Instant::now();
        let got = pollster::block_on(model.embed(&strs, |_| ())).unwrap();
        println!("embedded {:?}", t.elapsed());
        for (i, (g, w)) in got.vectors.chunks(384).zip(want.chunks(384)).enumerate() {
            let cos: f64 = g
                .iter()
                .zip(w)
                .map(|(a, b)| *a as f64 * *b as f64)
                .sum::<f64>();
            let n = g.iter().map(|a| (*a as f64).powi(2)).sum::<f64>().sqrt()
                * w.iter().map(|a| (*a as f64).powi(2)).sum::<f64>().sqrt();
            println!("{i} 1-cos {:.2e}", 1.0 - cos / n);
            assert!(cos / n > 0.99999);
        }
    }
}
