import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  plugins: [svelte()],
  resolve: { conditions: ['browser'] },
  // jsdom, because DOMPurify is only as reliable as the DOM under it.
  test: { environment: 'jsdom', include: ['tests/**/*.test.ts'], isolate: false, maxWorkers: 2 },
})
