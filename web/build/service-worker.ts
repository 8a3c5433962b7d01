/** Writes the service worker with the list of files that it caches, and the words of its notifications. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Plugin } from 'vite'

const ALSO = ['/', '/icon.svg', '/manifest.webmanifest']

const LANGUAGES = ['en', 'de', 'ru', 'zh-Hans']
const WORDS =
  /^push\.(?:answered|test\w+)$|^question\.(?:mayRun|workbench|owner|approved|denied|expired|withdrawn)$|^state\.asks$/

function words(root: string): Record<string, Record<string, string>> {
  const read = (name: string) =>
    JSON.parse(readFileSync(join(root, 'src', 'locales', `${name}.json`), 'utf8')) as Record<string, string>
  const of = (name: string) =>
    Object.entries({ ...read(name), ...read(`pages/${name}`) }).filter(([key]) => WORDS.test(key))
  return Object.fromEntries(LANGUAGES.map((name) => [name, Object.fromEntries(of(name))]))
}

export function serviceWorker(): Plugin {
  let root = ''
  let out = ''
  return {
    name: 'sessionary-service-worker',
    apply: 'build',
    configResolved(config) {
      root = config.root
      out = resolve(config.root, config.build.outDir)
    },
    closeBundle() {
      const html = readFileSync(join(out, 'index.html'), 'utf8')
      const named = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map((found) => found[1] ?? '')
      // The page does not reference the icons and the worker of the stream, but needs them at once.
      const more = readdirSync(join(out, 'assets')).filter(
        (name) => /^(?:icons|events)-/.test(name) && !/\.(?:br|gz)$/.test(name),
      )
      const shell = [...new Set([...ALSO, ...named, ...more.map((name) => `/assets/${name}`)])].sort()
      const version = createHash('sha256').update(html).digest('hex').slice(0, 12)
      const source = readFileSync(join(root, 'src', 'worker', 'service-worker.js'), 'utf8')
      writeFileSync(
        join(out, 'sw.js'),
        source
          .replace("'{shell}'", JSON.stringify(shell))
          .replace('{version}', version)
          .replace("'{words}'", () => JSON.stringify(words(root))),
      )
    },
  }
}
