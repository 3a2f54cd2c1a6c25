// Swagger UI over this service's own OpenAPI document. Nothing is asked of another host: no validator, no fonts.

const document_ = await (await fetch("openapi.json")).json();

// The document does not know a prefix that a proxy adds to its paths.
const prefix = new URL(".", location).pathname.slice(0, -1);
if (prefix) document_.servers = [{ url: prefix }];

// Swagger UI writes "string" into an optional field. With an empty example the field begins empty, and an empty field
// counts as left out.
for (const operation of Object.values(document_.paths).flatMap(Object.values)) {
  for (const { schema } of Object.values(operation.requestBody?.content ?? {})) {
    const form = schema.$ref ? document_.components.schemas[schema.$ref.split("/").pop()] : schema;
    for (const [name, field] of Object.entries(form.properties ?? {})) {
      if (!form.required?.includes(name) && field.default == null) field.example = "";
    }
  }
}

SwaggerUIBundle({
  spec: document_,
  dom_id: "#docs",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
