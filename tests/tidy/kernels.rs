//! A kernel is three things of one name: the shader, its layout and dispatch, and its naive
//! reference kernel.

/// Shaders that are no family of kernels (shared text, say), with the reason.
const NOT_A_FAMILY: &[(&str, &str)] = &[("functions", "what kernels of several families call")];

/// Reference kernels of what no shader in the folder computes, with the reason.
const REFERENCE_WITHOUT_SHADER: &[(&str, &str)] = &[
    ("mod", "the folder's front, no reference kernel"),
    (
        "normalize",
        "what the reference kernels of softmax and layer_norm share",
    ),
];

/// Every shader has its layout and its reference kernel, and every reference kernel has its shader.
/// Variants of one kernel may share a folder, `shaders/x/*.wgsl`, whose name counts then.
pub(crate) fn check(paths: &[String]) -> Vec<String> {
    let mut shaders: Vec<&str> = paths
        .iter()
        .filter_map(|path| name_under(path, "shaders/", ".wgsl"))
        .collect();
    shaders.dedup();
    let is_excepted =
        |list: &[(&str, &str)], name: &str| list.iter().any(|(excepted, _)| *excepted == name);
    let mut offences = Vec::new();
    for shader in shaders
        .iter()
        .filter(|shader| !is_excepted(NOT_A_FAMILY, shader))
    {
        for folder in ["src/ops/", "src/ops/reference/"] {
            if !paths
                .iter()
                .any(|path| name_under(path, folder, ".rs") == Some(shader))
            {
                offences.push(format!("shaders/{shader}.wgsl has no {folder}{shader}.rs"));
            }
        }
    }
    if shaders.is_empty() {
        return offences;
    }
    for reference in paths
        .iter()
        .filter_map(|path| name_under(path, "src/ops/reference/", ".rs"))
    {
        if !shaders.contains(&reference) && !is_excepted(REFERENCE_WITHOUT_SHADER, reference) {
            offences.push(format!(
                "src/ops/reference/{reference}.rs is the reference kernel of no shader"
            ));
        }
    }
    offences
}

/// The name of a file in `folder`, or of the subfolder that it lies in.
fn name_under<'a>(path: &'a str, folder: &str, extension: &str) -> Option<&'a str> {
    path.strip_prefix(folder)?
        .strip_suffix(extension)?
        .split('/')
        .next()
}

#[test]
fn a_kernel_that_misses_a_part_is_found() {
    let found = |paths: &[&str]| {
        check(
            &paths
                .iter()
                .map(|path| (*path).to_owned())
                .collect::<Vec<_>>(),
        )
        .len()
    };
    let whole = [
        "shaders/matmul.wgsl",
        "src/ops/matmul.rs",
        "src/ops/reference/matmul.rs",
        "src/ops/reference/mod.rs",
    ];
    assert_eq!(found(&[]), 0);
    assert_eq!(found(&whole), 0);
    assert_eq!(found(&whole[..2]), 1);
    assert_eq!(found(&whole[..1]), 2);
    assert_eq!(
        found(&[&whole[..], &["src/ops/reference/sum.rs"]].concat()),
        1
    );
    assert_eq!(
        found(&[
            "shaders/a/x.wgsl",
            "shaders/a/y.wgsl",
            "src/ops/a/mod.rs",
            "src/ops/reference/a.rs"
        ]),
        0
    );
    assert_eq!(found(&["src/ops/custom.rs", "src/ops/reference/mod.rs"]), 0);
}
