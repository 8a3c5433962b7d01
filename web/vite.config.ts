import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'
import { compress } from './build/compress.ts'
import { icons } from './build/icons.ts'
import { offline } from './build/offline.ts'

const FIRST_LOAD_BYTES = 110_000

export default defineConfig({
  plugins: [icons(), svelte(), offline(), compress(FIRST_LOAD_BYTES)],
  build: {
    outDir: '../src/sessionary/web/dist',
    emptyOutDir: true,
    target: 'es2022',
    reportCompressedSize: false,
    // Small files must stay files: the content policy allows no data: scripts or styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  worker: { format: 'es' },
  server: { proxy: { '/api': 'http://127.0.0.1:8741', '/login': 'http://127.0.0.1:8741' } },
})
