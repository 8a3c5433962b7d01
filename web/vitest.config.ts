import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  plugins: [svelte()],
  resolve: { conditions: ['browser'] },
  // jsdom: DOMPurify is only as good as the document under it.
  test: { environment: 'jsdom', include: ['tests/**/*.test.ts'], isolate: false, maxWorkers: 2 },
})
