import { mount } from 'svelte'
import App from './App.svelte'
import './app.css'
import { useLanguage } from './lib/i18n.svelte'
import { list } from './lib/list.svelte'
import { live } from './lib/live.svelte'
import { projects } from './lib/projects.svelte'
import { router } from './lib/router.svelte'

const target = document.getElementById('app')
if (!target) throw new Error('The page has no place for the workbench.')
// A keyboard on the screen takes room that only the visual viewport knows of.
visualViewport?.addEventListener('resize', () =>
  document.documentElement.style.setProperty('--height', `${visualViewport?.height ?? innerHeight}px`),
)
router.start()
live.start()
list.start()
projects.start()
void useLanguage().then(() => mount(App, { target }))

// Installable, and a shell without a network; not in development, where every file changes.
if (import.meta.env.PROD && 'serviceWorker' in navigator) {
  addEventListener('load', () =>
    setTimeout(() => void navigator.serviceWorker.register('/sw.js').catch(() => undefined), 2000),
  )
}
