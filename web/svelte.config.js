export default {
  compilerOptions: {
    runes: true,
    // Shorter than the default `svelte-` and seven characters: the class is on most elements.
    cssHash: ({ hash, css }) => `s${hash(css).slice(0, 4)}`,
  },
}
