// Functions for the test of the search: vectors beside PyTorch's, and files for the page.
globalThis.searching = {
  section: document.querySelector('#search'),
  part(name) { return this.section.querySelector(`.${name}`); },
  async texts(count) {
    const golden = await (await fetch('golden/texts.json')).json();
    return golden.slice(0, count).map(({ text }) => text);
  },
  async vectors(count) { return lapidary.search.vectors(await this.texts(count)); },
  // The least cosine with PyTorch's vectors of the first texts. Their number must be `count`.
  async cosine(ours, count) {
    const theirs = new Float32Array(await (await fetch('golden/embeddings.f32')).arrayBuffer());
    const width = 384;
    if (ours.length !== count * width) return NaN;
    let least = 1;
    for (let from = 0; from < ours.length; from += width) {
      let [dot, a, b] = [0, 0, 0];
      for (let i = from; i < from + width; i++) {
        dot += ours[i] * theirs[i];
        a += ours[i] ** 2;
        b += theirs[i] ** 2;
      }
      const cosine = dot / Math.sqrt(a * b);
      // A NaN is kept; `<` alone would lose it.
      least = cosine < least || Number.isNaN(cosine) ? cosine : least;
    }
    return least;
  },
  // Opens the model's files on the page as a user does, with one file replaced.
  async give(name, change) {
    const given = new DataTransfer();
    for (const each of ['config.json', 'tokenizer.json', 'model.safetensors']) {
      const file = await (await fetch(`model/${each}`)).blob();
      const blob = each === name ? change(file) : file;
      if (blob) given.items.add(new File([blob], each));
    }
    this.part('files').files = given.files;
    this.part('files').dispatchEvent(new Event('change'));
  },
};
