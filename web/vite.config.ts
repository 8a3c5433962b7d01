import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vite'
import { compress } from './build/compress.ts'
import { icons } from './build/icons.ts'
import { serviceWorker } from './build/service-worker.ts'

const FIRST_LOAD_BYTES = 110_000
const COMMON =
  /src\/lib\/(api\/http|i18n\.svelte|format|live\/.*|ui\/focus)\.ts$|ui\/Icon\.svelte$|svelte\/src\/internal\/disclose-version/

export default defineConfig({
  plugins: [icons(), svelte(), serviceWorker(), compress(FIRST_LOAD_BYTES)],
  build: {
    outDir: '../src/sessionary/web/dist',
    emptyOutDir: true,
    target: 'es2022',
    reportCompressedSize: false,
    // The content security policy forbids data: URLs, so small files must stay files.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // What every page uses is one file; otherwise each page that uses another part of it splits it once more.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [{ name: 'common', test: COMMON }],
        },
      },
    },
  },
  worker: { format: 'es' },
  server: { proxy: { '/api': 'http://127.0.0.1:8741', '/login': 'http://127.0.0.1:8741' } },
})
